// Random programs as assembly text: small functions of many instruction forms that touch memory in every way that
// relocated code has to get right, and that behave the same wherever their code stands.
//
// What every function relies on and keeps:
//   rbx rsi rdi r12 r14       point into the arena, far from its ends; rbx and r14 are multiples of 64
//   rbp                       does so in roots; helpers leave it alone, since a caller's may be a frame pointer
//   rcx r9 r13                are small indices (0..127; rcx 0..63)
//   r15                       points to the table of helpers' addresses
//   rax rdx r8 r10 r11        hold anything
// Flags that an instruction leaves undefined are defined again before anything may read them. Frames and red zones are
// filled before they are read.
//
// zone: hosted
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penumbra::rewrite {

struct GeneratedModule {
  std::string assembly;            // Intel syntax, without the section directives of tests/rewrite/assemble.h
  std::vector<std::string> roots;  // exported functions, to be called
  unsigned helpers = 0;            // local functions; their addresses stand in the exported array helper_table
};

// Bytes at the exported symbol module_data that functions write registers and flags to.
inline constexpr unsigned kModuleDataBytes = 512;

// `vector_level` as in machine.h.
GeneratedModule generate_module(std::uint64_t seed, unsigned roots, unsigned vector_level);

}  // namespace penumbra::rewrite
