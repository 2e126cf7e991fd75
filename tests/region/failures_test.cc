// The kernel says no: every memory call of a program of allocations, frees and purges fails once, one after the
// other, in each guard kind. Calls return null or go on, every invariant holds after each step, and when the kernel
// is willing again everything can be freed and nothing stays.
#include <gtest/gtest.h>
#include <errno.h>
#include <sys/mman.h>

#include <vector>

#include "tests/region/support.h"
#include "tests/support/shadow_map.h"

namespace penumbra::region {
namespace {

int g_calls = 0;
int g_fail_at = -1;
int g_fail_count = 1;
bool g_failed = false;

int fail_one(os::MemoryCall) {
  const int call = g_calls++;
  if (g_fail_at < 0 || call < g_fail_at || call >= g_fail_at + g_fail_count) return 0;
  g_failed = true;
  return ENOMEM;
}

// Every path of the allocator: pools, fresh areas, zones, large and sparse areas, retained memory, all phases of
// a purge.
void program(LazyRegions& regions) {
  std::vector<AppAddr> areas;
  const auto allocate = [&](std::size_t bytes, bool zero, AreaKind kind) {
    Request request;
    request.bytes = bytes;
    request.zero = zero;
    request.kind = kind;
    errno = 0;
    const AppAddr a = regions->allocate(request);
    if (a.is_null()) {
      EXPECT_EQ(errno, ENOMEM);
    } else {
      a.ptr()[0] = a.ptr()[bytes - 1] = 1;
      areas.push_back(a);
    }
    regions->validate();
  };
  for (int i = 0; i < 6; ++i) allocate((1 + i * 7) * kPageSize, false, AreaKind::kVmalloc);
  allocate(3 * kMiB + 7, true, AreaKind::kVmalloc);
  allocate(2 * kMiB, true, AreaKind::kHeapLarge);
  allocate(300 * kPageSize, false, AreaKind::kVmap);
  allocate(5 * kPageSize, false, AreaKind::kVmap);
  for (std::size_t i = 0; i < areas.size(); i += 2) {
    EXPECT_EQ(regions.free(areas[i]), FreeVerdict::kFreed);
    EXPECT_FALSE(shadow::is_accessible(areas[i], 1));
    areas[i] = AppAddr();
    regions->validate();
  }
  while (regions->purge_step()) regions->validate();
  for (int i = 0; i < 4; ++i) allocate((1 + i * 7) * kPageSize, true, AreaKind::kVmalloc);
  for (const AppAddr a : areas) {
    if (!a.is_null()) {
      EXPECT_EQ(regions.free(a), FreeVerdict::kFreed);
    }
  }
  regions->purge_all();
  regions->validate();
}

void fail_everywhere(Config config, int failures_in_a_row) {
  g_fail_count = failures_in_a_row;
  for (g_fail_at = 0;; ++g_fail_at) {
    SCOPED_TRACE(testing::Message() << "failing call " << g_fail_at);
    g_calls = 0;
    g_failed = false;
    {
      LazyRegions regions(config);
      os::set_failure_injector_test_only(fail_one);
      program(regions);
      os::set_failure_injector_test_only(nullptr);
      // Now nothing fails.
      regions->purge_all();
      const Stats stats = regions->stats();
      EXPECT_EQ(stats.live_areas + stats.lazy_areas, 0u);
      EXPECT_EQ(stats.shadow_pages, stats.shadow_pinned);
      if (config.guard != GuardKind::kPinned) {
        EXPECT_EQ(stats.shadow_pages, 0u);
      }
      regions->validate();
      const AppAddr a = regions.allocate(40 * kPageSize);
      EXPECT_FALSE(a.is_null());
    }
    if (testing::Test::HasFailure() || !g_failed) break;
    ASSERT_LT(g_fail_at, 2000);
  }
  EXPECT_GE(g_fail_at, 20);
}

Config with(GuardKind guard) {
  Config config = LazyRegions::small();
  config.guard = guard;
  config.nodes = 1;
  config.retain = 64 * kPageSize;
  config.purge_threshold = 64 * kPageSize;
  return config;
}

TEST(RegionFailures, EveryCallMayFailOnceWithMarkers) {
  fail_everywhere(with(GuardKind::kMarker), 1);
}

TEST(RegionFailures, EveryCallMayFailOnceWithMprotect) {
  fail_everywhere(with(GuardKind::kMprotect), 1);
}

TEST(RegionFailures, EveryCallMayFailOnceWhenPinned) {
  fail_everywhere(with(GuardKind::kPinned), 1);
}

TEST(RegionFailures, FourCallsInARowMayFailAnywhere) {
  fail_everywhere(with(GuardKind::kMarker), 4);
}

int fail_all(os::MemoryCall) {
  return ENOMEM;
}

TEST(RegionFailures, InitThatFailsAnywhereLeavesNothingBehind) {
  ASSERT_TRUE(reserve_test_map().ok());
  g_fail_count = 1;
  for (g_fail_at = 0; g_fail_at < 12; ++g_fail_at) {
    g_calls = 0;
    auto allocator = std::make_unique<RegionAllocator<LazyShadow>>();
    os::set_failure_injector_test_only(fail_one);
    Config config = LazyRegions::small();
    const bool made = allocator->init(config).ok();
    os::set_failure_injector_test_only(nullptr);
    EXPECT_EQ(allocator->is_initialized(), made);
    if (made) {
      Request request;
      request.bytes = 10;
      EXPECT_FALSE(allocator->allocate(request).is_null());
      const AppRange span = allocator->span();
      drop_shadow(span.begin, span.bytes());  // others will have these addresses
      allocator->destroy();
    }
  }
}

TEST(RegionFailures, NothingWorksWhenEveryCallFailsAndAllRecovers) {
  LazyRegions regions;
  std::vector<AppAddr> kept;
  for (int i = 0; i < 30; ++i) kept.push_back(regions.allocate((1 + i) * kPageSize));
  os::set_failure_injector_test_only(fail_all);
  EXPECT_TRUE(regions.allocate(5 * kMiB).is_null());
  EXPECT_TRUE(regions.allocate(77 * kPageSize).is_null());
  for (int i = 0; i < 30; i += 2) EXPECT_EQ(regions.free(kept[i]), FreeVerdict::kFreed);
  regions->purge_all();
  regions->validate();
  for (int i = 0; i < 30; i += 2) EXPECT_FALSE(shadow::is_accessible(kept[i], 1));
  os::set_failure_injector_test_only(nullptr);
  for (int i = 1; i < 30; i += 2) EXPECT_EQ(regions.free(kept[i]), FreeVerdict::kFreed);
  regions->purge_all();
  EXPECT_EQ(regions->stats().shadow_pages, 0u);
  EXPECT_EQ(regions->stats().lazy_areas, 0u);
  regions->validate();
}

}  // namespace
}  // namespace penumbra::region
