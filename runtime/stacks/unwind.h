// Unwinding for those inside runtime/stacks who know when cached rules must be checked again.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"

namespace penumbra::stacks {

// unwind() without revalidating modules first: see code_modules.h for when that is right.
std::size_t unwind_trusted(const CodeContext& from, std::uintptr_t* frames, std::size_t max);

}  // namespace penumbra::stacks
