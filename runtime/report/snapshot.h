// Collects what can be known about a fault, for diagnose() to judge.
//
// Whoever knows heaps, areas, globals and stacks hands in a function each (Sources), set once at start: unit tests
// bring fakes, and a process without a heap has none. A source only tries locks and says false when it cannot tell.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/report/compose.h"
#include "runtime/report/diagnose.h"

namespace penumbra::report {

struct Sources {
  bool (*describe_block)(AppAddr a, heap::BlockInfo& info) = nullptr;
  bool (*in_span)(AppAddr a) = nullptr;
  bool (*describe_area)(AppAddr a, region::AreaInfo& info) = nullptr;
  // The variable that `a` belongs to, or whose redzone it lies in.
  bool (*describe_global)(AppAddr a, GlobalInfo& info) = nullptr;
  std::size_t (*unwind)(const CodeContext& from, std::uintptr_t* frames, std::size_t max) = nullptr;
  std::size_t (*unwind_ucontext)(const void* ucontext, std::uintptr_t* frames, std::size_t max) = nullptr;
  std::size_t (*stored_stack)(StackId id, std::uintptr_t* frames, std::size_t max) = nullptr;
};

void collect(const Sources& sources, const Fault& fault, Snapshot& snapshot);
// The stacks of access, allocation and free that go with a snapshot.
void collect_stacks(const Sources& sources, const Snapshot& snapshot, ReportInput& input);

// Reads "n offset size length name[:line] ..." as gcc and clang describe a frame (KASAN: report_generic.c).
void parse_frame_description(const char* text, StackFrameInfo& frame);

}  // namespace penumbra::report
