// What the rest of the runtime needs of the C API: its set-up, and its statistics as text (stats=1).
//
// zone: nomalloc
#pragma once

#include "runtime/base/text_buffer.h"

namespace penumbra::runtime {

// After region::init(): bad frees from signal handlers, which are found late, become faults.
void init_vmalloc_api();

void append_vmalloc_stats(TextBuffer& out);

}  // namespace penumbra::runtime
