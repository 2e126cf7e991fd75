// Our own memcpy family against libc's, for every size up to 300 with every small misalignment and overlap, and some
// sizes above the `rep` threshold.
#include "runtime/base/raw_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

namespace penumbra {
namespace {

std::vector<std::uint8_t> pattern(std::size_t bytes) {
  std::vector<std::uint8_t> v(bytes);
  for (std::size_t i = 0; i < bytes; ++i) v[i] = static_cast<std::uint8_t>(i * 37 + 11);
  return v;
}

const std::vector<std::size_t>& sizes() {
  static const std::vector<std::size_t> all = [] {
    std::vector<std::size_t> v(300);
    std::iota(v.begin(), v.end(), 0);
    for (std::size_t s : {1023, 1024, 1025, 4096, 5001}) v.push_back(s);
    return v;
  }();
  return all;
}

TEST(RawMemory, CopyAndSetTouchExactlyTheirRange) {
  for (std::size_t size : sizes()) {
    for (std::size_t shift = 0; shift < 3; ++shift) {
      const auto from = pattern(size + 64);
      auto ours = std::vector<std::uint8_t>(size + 64, 0xaa);
      auto theirs = ours;
      raw_copy(ours.data() + shift, from.data() + 2 * shift, size);
      std::memcpy(theirs.data() + shift, from.data() + 2 * shift, size);
      ASSERT_EQ(ours, theirs) << "copy of " << size;
      raw_set(ours.data() + shift, 0x5c, size);
      std::memset(theirs.data() + shift, 0x5c, size);
      ASSERT_EQ(ours, theirs) << "set of " << size;
    }
  }
}

TEST(RawMemory, MoveSurvivesEveryOverlap) {
  for (std::size_t size : sizes()) {
    for (int distance : {-65, -17, -16, -15, -8, -1, 0, 1, 7, 15, 16, 17, 40}) {
      auto ours = pattern(size + 256);
      auto theirs = ours;
      raw_move(ours.data() + 100 + distance, ours.data() + 100, size);
      std::memmove(theirs.data() + 100 + distance, theirs.data() + 100, size);
      ASSERT_EQ(ours, theirs) << size << " bytes by " << distance;
    }
  }
}

TEST(RawMemory, FirstNonzeroFindsEveryPosition) {
  for (std::size_t size = 0; size < 200; ++size) {
    std::vector<std::uint8_t> v(size + 1, 0);
    v[size] = 1;  // behind the range
    EXPECT_EQ(raw_first_nonzero(v.data(), v.data() + size), v.data() + size);
    for (std::size_t at = 0; at < size; ++at) {
      v[at] = 0x80;
      EXPECT_EQ(raw_first_nonzero(v.data(), v.data() + size), v.data() + at);
      v[at] = 0;
    }
  }
}

TEST(RawMemory, CompareOrdersLikeMemcmp) {
  for (std::size_t size = 1; size < 100; ++size) {
    const auto a = pattern(size);
    EXPECT_EQ(raw_compare(a.data(), a.data(), size), 0);
    for (std::size_t at = 0; at < size; ++at) {
      auto b = a;
      b[at] = static_cast<std::uint8_t>(b[at] + 1);
      const int theirs = std::memcmp(a.data(), b.data(), size);
      EXPECT_EQ(raw_compare(a.data(), b.data(), size) < 0, theirs < 0);
    }
  }
}

}  // namespace
}  // namespace penumbra
