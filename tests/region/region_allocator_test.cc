// The region allocator claim by claim, on the direct map, with a span of 64 MiB and no retained shadow.
#include "allocator/region/region_allocator.h"

#include <gtest/gtest.h>
#include <errno.h>

#include <cstring>
#include <vector>

#include "tests/region/support.h"

namespace penumbra::region {
namespace {

using shadow::first_bad;
using shadow::kNoBadByte;

TEST(Regions, EveryRequestedByteIsAccessibleAndTheNextIsNot) {
  LazyRegions regions;
  for (const std::size_t bytes :
       {1u, 7u, 8u, 4095u, 4096u, 4097u, 40000u, 1u << 20, (1u << 20) + 1, (3u << 20) - 5}) {
    const AppAddr a = regions.allocate(bytes);
    ASSERT_FALSE(a.is_null()) << bytes;
    EXPECT_EQ(first_bad(a, bytes), kNoBadByte) << bytes;
    EXPECT_EQ(first_bad(a, bytes + 1), a + bytes) << bytes;
    std::memset(a.ptr(), 0x5a, bytes);
    regions->validate();
  }
}

TEST(Regions, GuardBehindEveryAreaFaultsAndIsTagged) {
  LazyRegions regions;
  for (const std::size_t pages : {1u, 5u, 256u, 300u}) {
    const AppAddr a = regions.allocate(pages * kPageSize);
    ASSERT_FALSE(a.is_null());
    const AppAddr guard = a + pages * kPageSize;
    EXPECT_TRUE(is_readable(guard - 1));
    EXPECT_FALSE(is_readable(guard));
    EXPECT_EQ(shadow::load_byte(guard), static_cast<std::uint8_t>(shadow::ShadowTag::kRegionGuard));
  }
}

TEST(Regions, FreedAreaIsBadAtOnceAndAfterThePurge) {
  LazyRegions regions;
  for (const std::size_t bytes : {4096u, 100000u, 2u << 20}) {
    const AppAddr a = regions.allocate(bytes);
    EXPECT_EQ(regions.free(a), FreeVerdict::kFreed);
    EXPECT_EQ(first_bad(a, 1), a);
    EXPECT_EQ(first_bad(a + bytes - 1, 1), a + bytes - 1);
    AreaInfo info;
    ASSERT_TRUE(regions->describe(a + 5, info));
    EXPECT_EQ(info.state, AreaState::kFreed);
    EXPECT_EQ(info.requested, bytes);
    regions->purge_all();
    EXPECT_EQ(first_bad(a, 1), a);
    EXPECT_FALSE(is_readable(a));
    ASSERT_TRUE(regions->describe(a + 5, info));
    EXPECT_EQ(info.state, AreaState::kPurged);
    EXPECT_EQ(info.requested, bytes);
  }
}

TEST(Regions, EverythingFreedAndPurgedLeavesNoShadowPage) {
  LazyRegions regions;
  std::vector<AppAddr> areas;
  for (std::size_t i = 1; i <= 300; ++i) areas.push_back(regions.allocate(i * 1000));
  areas.push_back(regions.allocate(5 * kMiB));
  EXPECT_GT(regions->stats().shadow_pages, 0u);
  for (const AppAddr a : areas) EXPECT_EQ(regions.free(a), FreeVerdict::kFreed);
  regions->purge_all();
  const Stats stats = regions->stats();
  EXPECT_EQ(stats.shadow_pages, 0u);
  EXPECT_EQ(stats.live_areas, 0u);
  EXPECT_EQ(stats.lazy_areas, 0u);
  regions->validate();
}

TEST(Regions, VerdictsNameWhatWasWrong) {
  LazyRegions regions;
  const AppAddr a = regions.allocate(3 * kPageSize);
  EXPECT_EQ(regions.free(a + kPageSize), FreeVerdict::kInterior);
  EXPECT_EQ(regions.free(a + 8), FreeVerdict::kInterior);
  EXPECT_EQ(regions.free(a + 3 * kPageSize), FreeVerdict::kForeign);
  int local = 0;
  EXPECT_EQ(regions.free(AppAddr(&local)), FreeVerdict::kForeign);
  EXPECT_EQ(regions.free(regions->span().end - kPageSize), FreeVerdict::kForeign);
  EXPECT_EQ(regions.free(a), FreeVerdict::kFreed);
  EXPECT_EQ(regions.free(a), FreeVerdict::kDoubleFree);
  regions->purge_all();
  EXPECT_EQ(regions.free(a), FreeVerdict::kDoubleFree);
}

TEST(Regions, ImpossibleRequestsReturnNullWithErrno) {
  LazyRegions regions;
  errno = 0;
  EXPECT_TRUE(regions.allocate(0).is_null());
  EXPECT_EQ(errno, EINVAL);
  EXPECT_TRUE(regions.allocate(4096, 3).is_null());
  EXPECT_EQ(errno, EINVAL);
  for (const std::size_t bytes : {std::size_t{64} << 20, std::size_t{1} << 40, ~std::size_t{0}, ~std::size_t{4095}}) {
    errno = 0;
    EXPECT_TRUE(regions.allocate(bytes).is_null());
    EXPECT_EQ(errno, ENOMEM);
  }
  for (unsigned shift = 27; shift < 64; ++shift) {
    EXPECT_TRUE(regions.allocate(4096, std::size_t{1} << shift).is_null()) << shift;
  }
  regions->validate();
}

TEST(Regions, ExhaustedSpanReturnsNullAndRecovers) {
  LazyRegions regions;
  std::vector<AppAddr> areas;
  for (;;) {
    const AppAddr a = regions.allocate(100 * kPageSize);
    if (a.is_null()) break;
    areas.push_back(a);
  }
  EXPECT_GT(areas.size(), 100u);
  regions->validate();
  for (const AppAddr a : areas) regions.free(a);
  EXPECT_FALSE(regions.allocate(100 * kPageSize).is_null());
  regions->validate();
}

TEST(Regions, AlignmentIsKept) {
  LazyRegions regions;
  for (unsigned shift = 12; shift <= 24; ++shift) {
    const std::size_t alignment = std::size_t{1} << shift;
    const AppAddr a = regions.allocate(3 * kPageSize, alignment);
    ASSERT_FALSE(a.is_null()) << shift;
    EXPECT_EQ(a.value % alignment, 0u);
    regions.free(a);
  }
  regions->validate();
}

}  // namespace
}  // namespace penumbra::region
