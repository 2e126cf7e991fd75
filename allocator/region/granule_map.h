// A bitmap over a fixed number of granules, with the two searches that placing objects needs.
//
// zone: signal-safe
#pragma once

#include "runtime/base/config.h"

#include <cstddef>
#include <cstdint>

namespace penumbra::region {

template <std::size_t kBits>
class GranuleMap {
 public:
  static_assert(kBits % 64 == 0);

  bool test(std::size_t bit) const { return (words_[bit / 64] >> (bit % 64) & 1) != 0; }

  void set(std::size_t bit) { words_[bit / 64] |= std::uint64_t{1} << (bit % 64); }

  void clear(std::size_t bit) { words_[bit / 64] &= ~(std::uint64_t{1} << (bit % 64)); }

  void assign(std::size_t first, std::size_t count, bool value) {
    while (count > 0) {
      const std::size_t shift = first % 64;
      const std::size_t here = count < 64 - shift ? count : 64 - shift;
      const std::uint64_t mask = (here == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << here) - 1) << shift;
      words_[first / 64] = value ? words_[first / 64] | mask : words_[first / 64] & ~mask;
      first += here;
      count -= here;
    }
  }

  // First bit of [from, end) that is set (or clear), `end` if there is none. end <= kBits.
  std::size_t next_set(std::size_t from, std::size_t end) const { return next(from, end, 0); }

  std::size_t next_clear(std::size_t from, std::size_t end) const { return next(from, end, ~std::uint64_t{0}); }

  // First run of `count` clear bits in [from, kBits) that begins at a multiple of `alignment` (a power of
  // two); kBits if there is none.
  std::size_t find_clear_run(std::size_t from, std::size_t count, std::size_t alignment) const {
    for (std::size_t at = from;;) {
      at = round_up(next_clear(at, kBits), alignment);
      if (at + count > kBits) return kBits;
      const std::size_t taken = next_set(at, at + count);
      if (taken == at + count) return at;
      at = taken + 1;
    }
  }

  std::size_t population() const {
    std::size_t sum = 0;
    for (const std::uint64_t word : words_) sum += static_cast<std::size_t>(__builtin_popcountll(word));
    return sum;
  }

 private:
  // `flip` all ones turns the search for set bits into one for clear bits.
  std::size_t next(std::size_t from, std::size_t end, std::uint64_t flip) const {
    while (from < end) {
      const std::uint64_t word = (words_[from / 64] ^ flip) >> (from % 64);
      if (word != 0) {
        const std::size_t found = from + static_cast<std::size_t>(__builtin_ctzll(word));
        return found < end ? found : end;
      }
      from = round_down(from, 64) + 64;
    }
    return end;
  }

  std::uint64_t words_[kBits / 64] = {};
};

}  // namespace penumbra::region
