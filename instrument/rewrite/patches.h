// Jumps from the original text into the area: five bytes where they fit, else two bytes to a slot of five in bytes that
// nobody reaches any more.
//
// The rules R2 and R3 of relocator_x86_64.h are kept here: what control can reach from unpatched code stays whole. An entry
// that can get no jump stays as it is, and so does all that is reached from it; that may take the room of others, so
// placing begins anew until nothing changes.
//
// zone: hosted
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "instrument/rewrite/program.h"
#include "instrument/rewrite/rewritten_module.h"

namespace penumbra::rewrite {

// Adds the patches of a function, and their counts, to the module. `reach` says by block of the function whether its entry
// is worth a jump; `placed` is by instruction of the program its code offset + 1. `is_begin_safe`: no jump of the
// function's own leads behind the first byte of its begin, although some are not resolved.
void place_patches(const Program& program, const Function& function, const std::vector<bool>& reach,
                   std::span<const std::uint32_t> placed, bool is_begin_safe, RewrittenModule& module);

}  // namespace penumbra::rewrite
