// What the body of a test gets besides the allocator: the parameters, the number of CPUs, and random numbers.
//
// zone: hosted
#pragma once

#include "bench/vmalloc/parameters.h"

#include <cstdint>

namespace penumbra::bench::vmalloc {

// xorshift64* (Vigna 2014): as cheap as the kernel's get_random_u32 is meant to be, and repeatable.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}

  std::uint32_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<std::uint32_t>((state_ * 0x2545f4914f6cdd1du) >> 32);
  }

  // Uniform in [0, bound); bound > 0.
  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>((std::uint64_t{next()} * bound) >> 32);
  }

  std::uint32_t between(std::uint32_t low, std::uint32_t high) { return low + below(high - low + 1); }

 private:
  std::uint64_t state_;
};

struct Context {
  const Parameters& parameters;
  unsigned cpus;
  Random random;
};

}  // namespace penumbra::bench::vmalloc
