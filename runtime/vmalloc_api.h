// What the rest of the runtime needs of the C API: its statistics as text (stats=1).
//
// zone: nomalloc
#pragma once

#include "runtime/base/text_buffer.h"

namespace penumbra::runtime {

void append_vmalloc_stats(TextBuffer& out);

}  // namespace penumbra::runtime
