// The registers of one frame, by their DWARF numbers, each known or not.
//
// An allocation site hands over three registers only (CodeContext); the others become known where a frame has saved
// them, or all at once from a signal's context. A rule that needs an unknown one must say so, not guess.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

namespace penumbra::stacks {

// System V ABI for x86-64, figure 3.36 (DWARF register number mapping).
inline constexpr unsigned kRax = 0;
inline constexpr unsigned kRdx = 1;
inline constexpr unsigned kRcx = 2;
inline constexpr unsigned kRbx = 3;
inline constexpr unsigned kRsi = 4;
inline constexpr unsigned kRdi = 5;
inline constexpr unsigned kRbp = 6;
inline constexpr unsigned kRsp = 7;
inline constexpr unsigned kR8 = 8;
inline constexpr unsigned kR12 = 12;
inline constexpr unsigned kR15 = 15;
inline constexpr unsigned kRip = 16;  // the return address column
inline constexpr unsigned kRegisters = 17;

// What a called function must give back unchanged: rbx, rbp, rsp, r12..r15.
inline constexpr std::uint32_t kCalleeSaved =
    1u << kRbx | 1u << kRbp | 1u << kRsp | 1u << 12 | 1u << 13 | 1u << 14 | 1u << 15;

struct Registers {
  std::uint64_t value[kRegisters] = {};
  std::uint32_t known = 0;  // bit r: value[r] is known

  bool has(unsigned r) const { return (known >> r & 1) != 0; }
  void set(unsigned r, std::uint64_t v) {
    value[r] = v;
    known |= 1u << r;
  }
};

}  // namespace penumbra::stacks
