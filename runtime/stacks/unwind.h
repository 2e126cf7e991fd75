// Unwinding by cached rules, for those inside runtime/stacks who know that the rules are true.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"

namespace penumbra::stacks {

// unwind(), but frames seen before cost some 6 ns each. See code_modules.h for when cached rules may be believed.
std::size_t unwind_by_rules(const CodeContext& from, std::uintptr_t* frames, std::size_t max);

}  // namespace penumbra::stacks
