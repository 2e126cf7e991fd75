// The list of our own address space: what the kernel door maps is on it, what it unmaps is off it, and nothing else.
#include "runtime/base/own_ranges.h"

#include <sys/mman.h>

#include "gtest/gtest.h"
#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"

namespace penumbra {
namespace {

AppRange range(std::size_t begin, std::size_t end) {
  return {AppAddr(begin), AppAddr(end)};
}

void add(std::size_t begin, std::size_t end, own_ranges::Use use = own_ranges::Use::kData) {
  own_ranges::add(range(begin, end), use);
}

TEST(OwnRanges, OnlyWhatIsOrMayBeWrittenIsData) {
  const std::size_t before = own_ranges::data_bytes();
  add(0x10000, 0x20000, own_ranges::Use::kKeptFree);
  add(0x30000, 0x38000);
  EXPECT_EQ(own_ranges::data_bytes(), before + 0x8000);
  own_ranges::became_data(AppAddr(0x12000));
  EXPECT_EQ(own_ranges::data_bytes(), before + 0x18000);
  own_ranges::remove(range(0x10000, 0x40000));
  EXPECT_EQ(own_ranges::data_bytes(), before);
}

TEST(OwnRanges, RemovingFromTheMiddleLeavesBothEnds) {
  add(0x10000, 0x20000);
  const std::size_t before = own_ranges::total_bytes();
  own_ranges::remove(range(0x14000, 0x18000));
  EXPECT_EQ(own_ranges::total_bytes(), before - 0x4000);
  EXPECT_TRUE(own_ranges::overlaps(range(0x13fff, 0x14001)));
  EXPECT_FALSE(own_ranges::overlaps(range(0x14000, 0x18000)));
  EXPECT_TRUE(own_ranges::overlaps(range(0x17fff, 0x18001)));
  own_ranges::remove(range(0x10000, 0x20000));
  EXPECT_FALSE(own_ranges::overlaps(range(0x10000, 0x20000)));
}

TEST(OwnRanges, TheFirstForeignPartLiesBetweenOwnOnes) {
  add(0x10000, 0x14000);
  add(0x14000, 0x18000);
  add(0x1c000, 0x20000);
  const AppRange hole = own_ranges::first_foreign(range(0x12000, 0x20000));
  EXPECT_EQ(hole.begin.value, 0x18000u);
  EXPECT_EQ(hole.end.value, 0x1c000u);
  const AppRange none = own_ranges::first_foreign(range(0x10000, 0x18000));
  EXPECT_EQ(none.begin.value, none.end.value);
  own_ranges::remove(range(0x10000, 0x20000));
  EXPECT_EQ(own_ranges::first_foreign(range(0x10000, 0x20000)).bytes(), 0x10000u);
}

TEST(OwnRanges, EveryWayToNewAddressSpaceIsOnTheList) {
  const std::size_t before = own_ranges::total_bytes();
  // Two places that are free in any process, ThreadSanitizer's too: the lower half of what the kernel gives.
  constexpr std::size_t kRoom = std::size_t{1} << 30;
  const os::Result room = os::reserve(AppAddr(), kRoom);
  ASSERT_TRUE(room.ok() && os::unmap(room.address(), kRoom).ok());
  const os::Result made[] = {os::reserve(AppAddr(), kPageSize), os::map_anonymous(kPageSize),
                             os::map_noreserve(kPageSize), os::reserve_at(room.address(), kPageSize),
                             os::map_fixed_noreplace(room.address() + 2 * kPageSize, kPageSize)};
  for (const os::Result& mapped : made) ASSERT_TRUE(mapped.ok());
  EXPECT_EQ(own_ranges::total_bytes(), before + std::size(made) * kPageSize);
  for (const os::Result& mapped : made) ASSERT_TRUE(os::unmap(mapped.address(), kPageSize).ok());
  EXPECT_EQ(own_ranges::total_bytes(), before);
}

TEST(OwnRanges, TheKernelDoorKeepsTheList) {
  const std::size_t before = own_ranges::total_bytes();
  const os::Result mapped = os::map_anonymous(4 * kPageSize);
  ASSERT_TRUE(mapped.ok());
  const AppRange all{mapped.address(), mapped.address() + 4 * kPageSize};
  EXPECT_TRUE(own_ranges::overlaps(all));
  EXPECT_EQ(own_ranges::total_bytes(), before + 4 * kPageSize);
  ASSERT_TRUE(os::unmap(all.begin, kPageSize).ok());
  EXPECT_FALSE(own_ranges::overlaps({all.begin, all.begin + kPageSize}));
  EXPECT_TRUE(own_ranges::overlaps({all.begin + kPageSize, all.end}));
  ASSERT_TRUE(os::unmap(all.begin + kPageSize, 3 * kPageSize).ok());
  EXPECT_EQ(own_ranges::total_bytes(), before);
}

TEST(OwnRanges, WhatFindsNoSlotIsCounted) {
  const std::size_t lost = own_ranges::lost_bytes();
  std::size_t added = 0;
  while (own_ranges::lost_bytes() == lost && added < 10000) {
    add(0x100000 + added * 0x2000, 0x101000 + added * 0x2000);
    ++added;
  }
  EXPECT_EQ(own_ranges::lost_bytes(), lost + 0x1000);
  own_ranges::remove(range(0x100000, 0x100000 + added * 0x2000));
  EXPECT_FALSE(own_ranges::overlaps(range(0x100000, 0x100000 + added * 0x2000)));
}

}  // namespace
}  // namespace penumbra
