// The text of a report, in KASAN's layout, line by line (mm/kasan/report.c of Linux 6.12 and later).
//
// Pure: everything printed is in the ReportInput. Where our words differ from the kernel's, it is to say more: the
// distance is that of the first byte that may not be touched (the kernel's is that of the access's begin), regions
// have stacks and a distance too, and lines that the kernel lacks stand where its parsers skip them.
//
// zone: signal-safe
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/base/text_buffer.h"
#include "runtime/report/code_names.h"
#include "runtime/report/diagnose.h"

namespace penumbra::report {

struct Stack {
  std::array<std::uintptr_t, kMaxStackFrames> frames{};
  std::size_t count = 0;
};

struct ReportInput {
  const Snapshot* snapshot = nullptr;
  Diagnosis diagnosis;
  Stack access;
  Stack allocated;
  Stack freed;
  const NameTable* names = nullptr;  // holds every frame of the stacks
};

void compose_report(TextBuffer& out, const ReportInput& input);

// The word of the title: class_word(), or that of the function whose arguments overlap ("strcpy-param-overlap").
void append_class(TextBuffer& out, const ReportInput& input);

}  // namespace penumbra::report
