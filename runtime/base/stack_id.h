// A recorded stack as a number: what headers, areas and reports keep. The depot (runtime/stacks) turns a stack into
// its number and back. 0 is "no stack was recorded".
//
// zone: signal-safe
#pragma once

#include <cstdint>

namespace penumbra {

using StackId = std::uint32_t;
inline constexpr StackId kNoStack = 0;

}  // namespace penumbra
