// The two searches of the bitmap against a loop over single bits, on random maps.

#include "allocator/region/granule_map.h"

#include <gtest/gtest.h>

#include <random>

namespace penumbra::region {
namespace {

constexpr std::size_t kBits = 192;
using Map = GranuleMap<kBits>;

std::size_t run_by_definition(const Map& map, std::size_t from, std::size_t count, std::size_t alignment) {
  for (std::size_t at = round_up(from, alignment); at + count <= kBits; at += alignment) {
    bool is_clear = true;
    for (std::size_t bit = at; bit < at + count; ++bit) is_clear = is_clear && !map.test(bit);
    if (is_clear) return at;
  }
  return kBits;
}

TEST(GranuleMap, SearchesFindWhatALoopOverBitsFinds) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    Map map;
    for (int i = 0; i < 6; ++i) {
      const std::size_t first = random() % kBits;
      map.assign(first, random() % (kBits - first + 1), random() % 2 == 0);
    }
    std::size_t population = 0;
    for (std::size_t bit = 0; bit < kBits; ++bit) population += map.test(bit);
    ASSERT_EQ(map.population(), population);
    for (int i = 0; i < 20; ++i) {
      const std::size_t from = random() % kBits;
      std::size_t set = from;
      while (set < kBits && !map.test(set)) ++set;
      std::size_t clear = from;
      while (clear < kBits && map.test(clear)) ++clear;
      ASSERT_EQ(map.next_set(from, kBits), set);
      ASSERT_EQ(map.next_clear(from, kBits), clear);
      const std::size_t count = 1 + random() % 70;
      const std::size_t alignment = std::size_t{1} << random() % 6;
      ASSERT_EQ(map.find_clear_run(from, count, alignment), run_by_definition(map, from, count, alignment))
          << "from " << from << ", " << count << " bits, alignment " << alignment;
    }
  }
}

TEST(GranuleMap, AssignTouchesOnlyItsBits) {
  for (std::size_t first = 0; first < kBits; ++first) {
    for (const std::size_t count : {0u, 1u, 63u, 64u, 65u, 130u}) {
      if (first + count > kBits) continue;
      Map map;
      map.assign(first, count, true);
      ASSERT_EQ(map.population(), count);
      if (count == 0) continue;
      ASSERT_EQ(map.next_set(0, kBits), first);
      ASSERT_EQ(map.next_clear(first, kBits), first + count);
      map.assign(first, count, false);
      ASSERT_EQ(map.population(), 0u);
    }
  }
}

}  // namespace
}  // namespace penumbra::region
