// How many bytes xsave, xrstor and their relatives touch: what the processor says of each component's place.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

namespace penumbra::load {

// The first two words of an image's header, at byte 512: which components it holds, and how they lie.
struct StateHeader {
  std::uint64_t present = 0;
  std::uint64_t format = 0;
};

// `opcode` are the two bytes behind 0f: ae or c7, and ModRM; `wanted` is edx:eax. The header decides for a restore only.
std::size_t saved_state_bytes(const std::uint8_t* opcode, std::uint64_t wanted, const StateHeader& header);

// Legacy area and header: what every form touches.
inline constexpr std::size_t kStateHeaderEnd = 576;

}  // namespace penumbra::load
