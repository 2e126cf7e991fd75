// Lessons of the kernel's bugs (facts kasan 1.6, by number) that no other test holds; lessons.py has the whole list.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "tests/purge/support.h"

namespace penumbra::region {
namespace {

using shadow::first_bad;
using shadow::kNoBadByte;

// 4: area size and requested size are two things, in huge areas too.
TEST(Lesson4, HugeAreaEndsWhereItWasAskedToEnd) {
  LazyRegions regions;
  Request request;
  request.bytes = 2 * kMiB + 12345;
  request.huge = true;
  const AppAddr a = regions->allocate(request);
  ASSERT_FALSE(a.is_null());
  EXPECT_EQ(a.value % (2 * kMiB), 0u);
  EXPECT_EQ(first_bad(a, request.bytes), kNoBadByte);
  EXPECT_EQ(first_bad(a, request.bytes + 1), a + request.bytes);
  EXPECT_EQ(regions->requested_bytes(a), request.bytes);
}

// 6, 14: a step has a bound however much waits, and however large the areas are.
TEST(Lesson6, StepOfAPurgeIsBoundedByWorkNotByWhatWaits) {
  static std::uint64_t most_areas;
  static std::uint64_t waiting;
  static RegionAllocator<LazyShadow>* allocator;
  Config config = LazyRegions::small();
  config.nodes = 1;
  config.span_bytes = 512 * kMiB;
  config.purge_threshold = 64 * kMiB;
  config.step_hook = [](std::uint64_t) {
    const std::uint64_t now = allocator->stats().lazy_areas;
    if (now < waiting) most_areas = std::max(most_areas, waiting - now);
    waiting = now;
  };
  LazyRegions regions(config);
  allocator = &*regions;
  const std::vector<AppAddr> areas = allocate_many(regions, 20000);
  most_areas = waiting = 0;
  free_all(regions, areas);
  EXPECT_GT(most_areas, 32u);
  EXPECT_LE(most_areas, 64u);
}

// 15: sizes that are no multiples of anything, grown and shrunk within the pages: exactly the asked bytes are
// accessible, at each step.
TEST(Lesson15, ResizingByOddBytesMovesTheEndExactly) {
  LazyRegions regions;
  std::mt19937 random(15);
  std::size_t bytes = 5 * kPageSize - 3;
  const AppAddr a = regions.allocate(bytes);
  for (int i = 0; i < 2000; ++i) {
    const std::size_t wanted = 1 + random() % (5 * kPageSize);
    std::size_t old = 0;
    ASSERT_EQ(regions->resize(a, wanted, kNoStack, AreaKind::kVmalloc, old), ResizeVerdict::kResized);
    ASSERT_EQ(old, bytes);
    bytes = wanted;
    ASSERT_EQ(first_bad(a, bytes), kNoBadByte);
    ASSERT_EQ(first_bad(a, bytes + 1), a + bytes);
  }
  regions->validate();
}

// 20: memory first, shadow last. Whenever the purge calls the kernel, an area whose shadow is going or gone is out of
// reach already.
TEST(Lesson20, MemoryIsOutOfReachBeforeItsShadowGoes) {
  static std::vector<AppAddr> areas;
  static RegionAllocator<LazyShadow>* allocator;
  static int looked;
  static int too_early;
  LazyRegions regions;
  allocator = &*regions;
  looked = too_early = 0;
  areas = allocate_many(regions, 300, 7);
  for (const AppAddr a : areas) a.ptr()[0] = 1;
  free_all(regions, areas);
  {
    InMemoryCalls look([] {
      for (const AppAddr a : areas) {
        const shadow::UnitState state = allocator->shadow().units().view(a).state;
        if (state != shadow::UnitState::kFlushing && state != shadow::UnitState::kEmpty) continue;
        ++looked;
        if (is_readable(a)) ++too_early;
      }
    });
    regions->purge_all();
  }
  EXPECT_GT(looked, 0);
  EXPECT_EQ(too_early, 0);
  areas.clear();
}

// 21: what a flush covers does not depend on the order in which areas came.
TEST(Lesson21, AreasInAnyOrderAreAllFlushed) {
  LazyRegions regions;
  std::vector<AppAddr> areas = allocate_many(regions, 500, 3);
  for (const AppAddr a : areas) a.ptr()[0] = 1;
  std::shuffle(areas.begin(), areas.end(), std::mt19937(21));
  free_all(regions, areas);
  regions->purge_all();
  for (const AppAddr a : areas) EXPECT_FALSE(is_readable(a));
  EXPECT_EQ(regions->stats().shadow_pages, 0u);
}

}  // namespace
}  // namespace penumbra::region
