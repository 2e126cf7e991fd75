// What stats=1 prints when a process ends: areas and their shadow pages, heap, stack depot, reports.
//
// One `name: value` line a figure, under one line that names the process, in one write to where reports go. The
// figures are read without locks: exact where no other thread runs any more.
//
// zone: signal-safe
#pragma once

#include "runtime/base/text_buffer.h"

namespace penumbra::runtime {

void append_stats(TextBuffer& out);

// Nothing is printed by a guest in this process's memory (a vfork child), which has no figures of its own.
void say_stats();

}  // namespace penumbra::runtime
