// An allocation that finds nothing purges by itself: no more than it needs, and no longer than one whole pass.
#include <gtest/gtest.h>
#include <errno.h>

#include <atomic>
#include <thread>

#include "tests/purge/support.h"

namespace penumbra::region {
namespace {

Config tight() {
  Config config = LazyRegions::small();
  config.nodes = 1;
  config.purge_threshold = 1024 * kMiB;  // nobody purges but those in need
  return config;
}

// As many areas of one page as the span holds.
std::vector<AppAddr> fill(LazyRegions& regions) {
  std::vector<AppAddr> areas;
  for (AppAddr a = regions.allocate(kPageSize); !a.is_null(); a = regions.allocate(kPageSize)) areas.push_back(a);
  return areas;
}

TEST(PurgeShortage, AllocationTakesNoMoreStepsThanItNeeds) {
  LazyRegions regions(tight());
  const std::vector<AppAddr> areas = fill(regions);
  ASSERT_EQ(areas.size(), 64 * kMiB / kPageSize / 2);
  for (std::size_t i = 0; i < 4000; ++i) regions.free(areas[i]);
  const std::uint64_t steps = regions->stats().purge_chunks;
  for (int i = 0; i < 32; ++i) {
    ASSERT_FALSE(regions.allocate(kPageSize).is_null());
    // The chunk that the first of them tears down serves the others.
    ASSERT_EQ(regions->stats().purge_chunks, steps + 1);
  }
  EXPECT_EQ(regions->stats().lazy_areas, 4000u - 32u);
  // What needs them all takes them all: 4000 areas side by side.
  EXPECT_FALSE(regions.allocate(6000 * kPageSize).is_null());
  EXPECT_EQ(regions->stats().lazy_areas, 0u);
  regions->validate();
}

TEST(PurgeShortage, RequestThatNothingCanServeEndsAfterOneWholePass) {
  LazyRegions regions(tight());
  const std::vector<AppAddr> areas = fill(regions);
  for (std::size_t i = 0; i < areas.size(); i += 2) regions.free(areas[i]);
  const Stats before = regions->stats();
  errno = 0;
  EXPECT_TRUE(regions.allocate(16 * kPageSize).is_null());
  EXPECT_EQ(errno, ENOMEM);
  const Stats after = regions->stats();
  EXPECT_EQ(after.lazy_areas, 0u);
  EXPECT_EQ(after.purge_passes, before.purge_passes + 1);
  EXPECT_LE(after.purge_chunks - before.purge_chunks, areas.size() / 2 / 32 + 3);
}

// A pass that another began before does not count, however far it had come: one more is made.
TEST(PurgeShortage, PassThatWasUnderWayIsNotTheWholePass) {
  Config config = tight();
  config.purge_threshold = 8 * kMiB;
  config.purge_chunk = 1;
  LazyRegions regions(config);
  const std::vector<AppAddr> areas = fill(regions);
  // 1024 areas reach the threshold and begin a pass, which is in the middle of them when the need comes.
  const std::uint64_t before = regions->stats().purge_passes;
  for (std::size_t i = 0; i < 1040; ++i) regions.free(areas[i]);
  ASSERT_EQ(regions->stats().purge_passes, before + 1);
  ASSERT_GT(regions->stats().lazy_areas, 900u);
  EXPECT_TRUE(regions.allocate(32 * kMiB).is_null());
  EXPECT_EQ(regions->stats().lazy_areas, 0u);
  EXPECT_EQ(regions->stats().retained_areas, 0u);
  EXPECT_EQ(regions->stats().purge_passes, before + 2);
}

// The bound holds while others purge and allocate: each failing request comes back.
TEST(PurgeShortage, FailingRequestsOfManyThreadsAllReturn) {
  Config config = tight();
  config.purge_threshold = kMiB;
  LazyRegions regions(config);
  const AppAddr kept = regions.allocate(5 * kMiB);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 40; ++i) {
        if (!regions.allocate(60 * kMiB + kPageSize).is_null()) ++wrong;
        const AppAddr a = regions.allocate(kPageSize);
        if (a.is_null() || regions.free(a) != FreeVerdict::kFreed) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  regions.free(kept);
  regions->validate();
}

TEST(Ruling13, EighthOfTheMemoryLimitBoundsWhatIsFreedAndKept) {
  Config config = LazyRegions::small();
  config.nodes = 1;
  config.purge_threshold = 32 * kMiB;
  config.retain = 32 * kMiB;
  config.memory_limit = 16 * kMiB;
  LazyRegions regions(config);
  EXPECT_EQ(regions->purge_threshold(), 2 * kMiB);
  std::uint64_t most = 0;
  for (int i = 0; i < 3000; ++i) {
    const AppAddr a = regions.allocate((1 + i % 8) * kPageSize);
    for (std::size_t at = 0; at < (1 + i % 8) * kPageSize; at += kPageSize) a.ptr()[at] = 1;
    regions.free(a);
    const Stats stats = regions->stats();
    most = std::max(most, stats.lazy_bytes);
    ASSERT_LE(stats.retained_bytes, 2 * kMiB);
  }
  // Above the threshold until the pass that it began has come to them.
  EXPECT_LE(most, 2 * kMiB + 64 * 8 * kPageSize);
  EXPECT_GT(most, kMiB);
}

}  // namespace
}  // namespace penumbra::region
