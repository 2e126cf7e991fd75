// The three ways to keep memory inaccessible: what each promises, that each leaves nothing behind, and how one steps
// down to the next.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

#include "tests/region/support.h"
#include "tests/support/shadow_map.h"

namespace penumbra::region {
namespace {

Config with(GuardKind guard) {
  Config config = LazyRegions::small();
  config.guard = guard;
  return config;
}

std::vector<AppAddr> fill(LazyRegions& regions) {
  std::vector<AppAddr> areas;
  for (std::size_t i = 1; i <= 200; ++i) {
    areas.push_back(regions.allocate(i * 700));
    EXPECT_FALSE(areas.back().is_null());
    areas.back().ptr()[0] = 1;
  }
  areas.push_back(regions.allocate(5 * kMiB));
  return areas;
}

class EveryGuard : public ::testing::TestWithParam<GuardKind> {};

TEST_P(EveryGuard, LeavesNoShadowPageExceptPinnedOnes) {
  LazyRegions regions(with(GetParam()));
  ASSERT_EQ(regions->guards().kind(), GetParam());
  const std::vector<AppAddr> areas = fill(regions);
  for (const AppAddr a : areas) regions.free(a);
  regions->purge_all();
  const Stats stats = regions->stats();
  EXPECT_EQ(stats.shadow_pages, stats.shadow_pinned);
  if (GetParam() == GuardKind::kPinned) {
    EXPECT_GT(stats.shadow_pinned, 0u);
  } else {
    EXPECT_EQ(stats.shadow_pinned, 0u);
  }
  regions->validate();
}

TEST_P(EveryGuard, HidesPurgedMemoryFromEveryCheck) {
  LazyRegions regions(with(GetParam()));
  const std::vector<AppAddr> areas = fill(regions);
  for (std::size_t i = 0; i < areas.size(); i += 3) regions.free(areas[i]);
  regions->purge_all();
  for (std::size_t i = 0; i < areas.size(); ++i) {
    EXPECT_EQ(shadow::is_accessible(areas[i], 1), i % 3 != 0);
    // Where the kernel cannot help, shadow must: an inline check reads the byte alone.
    if (i % 3 == 0 && is_readable(areas[i])) {
      EXPECT_GE(shadow::load_byte(areas[i]), shadow::kFirstTag);
    }
  }
}

TEST_P(EveryGuard, GivesPurgedMemoryBackToTheKernel) {
  LazyRegions regions(with(GetParam()));
  const AppAddr a = regions.allocate(100 * kPageSize);
  const AppAddr neighbour = regions.allocate(kPageSize);
  for (std::size_t i = 0; i < 100; ++i) a.ptr()[i * kPageSize] = 1;
  neighbour.ptr()[0] = 9;
  regions.free(a);
  regions->purge_all();
  unsigned char in_core[100];
  ASSERT_EQ(mincore(a.ptr<void>(), 100 * kPageSize, in_core), 0);
  for (const unsigned char page : in_core) EXPECT_EQ(page & 1, 0);
  EXPECT_EQ(neighbour.ptr()[0], 9);
}

TEST_P(EveryGuard, ReopensItsOwnAddresses) {
  LazyRegions regions(with(GetParam()));
  for (int round = 0; round < 5; ++round) {
    const AppAddr a = regions.allocate((20 + round) * kPageSize);
    ASSERT_FALSE(a.is_null());
    EXPECT_EQ(a.ptr()[0], 0);
    a.ptr()[(20 + round) * kPageSize - 1] = 1;
    regions.free(a);
    regions->purge_all();
  }
}

INSTANTIATE_TEST_SUITE_P(Guards, EveryGuard,
                         ::testing::Values(GuardKind::kMarker, GuardKind::kMprotect, GuardKind::kPinned));

int no_markers(os::MemoryCall call) {
  // GUARD_INSTALL is the only advice that init() gives before anything else.
  return call == os::MemoryCall::kAdvise ? EINVAL : 0;
}

TEST(Guards, KernelWithoutMarkersGetsMprotect) {
  ASSERT_TRUE(reserve_test_map().ok());
  auto allocator = std::make_unique<RegionAllocator<NoShadow>>();
  os::set_failure_injector_test_only(no_markers);
  ASSERT_TRUE(allocator->init(with(GuardKind::kAuto)).ok());
  os::set_failure_injector_test_only(nullptr);
  EXPECT_EQ(allocator->guards().kind(), GuardKind::kMprotect);
  allocator->destroy();
}

// Half of vm.max_map_count is ours; an area under mprotect costs two mappings. Beyond, units are pinned one by one,
// and nobody is refused.
TEST(Guards, MprotectStepsDownToPinnedWhereMappingsRunShort) {
  Config config = with(GuardKind::kMprotect);
  config.span_bytes = 512 * kMiB;
  config.nodes = 1;
  config.purge_threshold = 1024 * kMiB;
  LazyRegions regions(config);
  std::vector<AppAddr> areas;
  while (areas.size() < 20'000) {
    areas.push_back(regions.allocate(kPageSize));
    ASSERT_FALSE(areas.back().is_null()) << areas.size();
    areas.back().ptr()[0] = 1;
  }
  const Stats full = regions->stats();
  EXPECT_GT(full.shadow_pinned, 0u);
  EXPECT_LT(full.shadow_pinned, full.shadow_pages);
  for (const AppAddr a : areas) EXPECT_EQ(regions.free(a), FreeVerdict::kFreed);
  regions->purge_all();
  // Mappings are plenty again, so free zones became PROT_NONE and their pins went.
  EXPECT_EQ(regions->stats().shadow_pages, 0u);
  regions->validate();
}

}  // namespace
}  // namespace penumbra::region
