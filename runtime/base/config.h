// Compile-time constants of the whole project: the machine's page, the limits of fixed buffers.
//
// A number that is true of the machine or fixes a buffer's size lives here; the encoding's numbers live in
// shadow/encoding.h, and what a user may change at run time lives in flags.inc.
//
// zone: signal-safe
#pragma once

#include <cstddef>

namespace penumbra {

inline constexpr unsigned kPageShift = 12;
inline constexpr std::size_t kPageSize = std::size_t{1} << kPageShift;
inline constexpr std::size_t kHugePageSize = std::size_t{2} << 20;

// One past the highest user address on x86-64 with four-level tables (Documentation/x86/x86_64/mm.rst).
inline constexpr std::size_t kUserAddressEnd = std::size_t{1} << 47;

// Most frames that any recorded stack holds; KASAN_STACK_DEPTH in the kernel.
inline constexpr std::size_t kMaxStackFrames = 64;

// Longest path that fixed buffers keep, with its terminating zero.
inline constexpr std::size_t kMaxPath = 4096;

constexpr std::size_t round_up(std::size_t value, std::size_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

constexpr std::size_t round_down(std::size_t value, std::size_t alignment) {
  return value & ~(alignment - 1);
}

constexpr bool is_power_of_two(std::size_t value) {
  return value != 0 && (value & (value - 1)) == 0;
}

}  // namespace penumbra
