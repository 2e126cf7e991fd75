// A whole register state, put into the processor before a generated function runs and taken out of it afterwards.
//
// zone: hosted
#pragma once

#include <cstddef>
#include <cstdint>

namespace penumbra::rewrite {

// Read and written by machine_x86_64.S: offsets are fixed.
struct alignas(64) Machine {
  std::uint64_t general[16];  // by encoding; rsp is the stack that the function gets
  std::uint64_t flags;
  std::uint64_t masks[8];  // k0..k7, where the processor has them
  std::uint64_t padding[7];
  std::uint8_t vectors[32][64];  // as wide and as many as the processor has
  std::uint8_t x87[512];         // an fxsave image; its xmm registers are not used
};

static_assert(offsetof(Machine, flags) == 128 && offsetof(Machine, masks) == 136);
static_assert(offsetof(Machine, vectors) == 256 && offsetof(Machine, x87) == 2304);

}  // namespace penumbra::rewrite

extern "C" {

// 0: 16 xmm registers, 1: 16 ymm registers, 2: 32 zmm and 8 mask registers.
extern std::uint32_t machine_vector_level;
// Loads the state, calls the function on the state's stack, and stores what is then in the registers.
void machine_run(penumbra::rewrite::Machine* state, const void* function);
}
