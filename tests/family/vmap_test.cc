// vmap() and vm_map_ram(): aliases that agree, and everything around them that must not be touched.

#include "allocator/region/vmap.h"

#include "allocator/region/map_ram.h"
#include "tests/family/family_fixture.h"

#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace penumbra::region {
namespace {

class VmapTest : public FamilyTest {
 protected:
  void SetUp() override {
    FamilyTest::SetUp();
    for (std::size_t i = 0; i < 80; ++i) {
      Page* const page = pool_.allocate(0);
      ASSERT_NE(page, nullptr);
      pages_.push_back(page);
    }
  }

  void TearDown() override {
    map_ram_.trim();
    EXPECT_EQ(map_ram_.blocks(), 0u);
    for (Page* const page : pages_) pool_.free(page, 0);
    pool_.trim();
    expect_nothing_left();
    FamilyTest::TearDown();
  }

  static volatile int& word(AppAddr a) { return *a.ptr<volatile int>(); }

  std::vector<Page*> pages_;
  PagePool<Regions> pool_{regions_};
  VmapAreas<Regions> vmaps_{regions_, pool_};
  MapRam<Regions> map_ram_{regions_, pool_, vmaps_};
};

TEST_F(VmapTest, MappedPagesAreTheirOwnInTheOrderGiven) {
  // Not adjacent, then adjacent, then one twice: each page shows where it was put.
  Page* const order[] = {pages_[7], pages_[3], pages_[4], pages_[5], pages_[3]};
  const AppAddr mapped = vmaps_.map(order, 5, kNoStack);
  ASSERT_FALSE(mapped.is_null());
  for (int i = 0; i < 5; ++i) word(pool_.address(order[i])) = i == 4 ? 1 : i;
  EXPECT_EQ(word(mapped), 0);
  EXPECT_EQ(word(mapped + kPageSize), 1);
  EXPECT_EQ(word(mapped + 2 * kPageSize), 2);
  EXPECT_EQ(word(mapped + 3 * kPageSize), 3);
  word(mapped + 4 * kPageSize) = 9;
  EXPECT_EQ(word(mapped + kPageSize), 9);
  EXPECT_EQ(word(pool_.address(pages_[3])), 9);
  EXPECT_EQ(vmaps_.unmap(mapped, kNoStack), FreeVerdict::kFreed);
  EXPECT_EQ(word(pool_.address(pages_[7])), 0);
}

TEST_F(VmapTest, TheByteBehindIsTheGuard) {
  const AppAddr mapped = vmaps_.map(pages_.data(), 3, kNoStack);
  EXPECT_TRUE(fine(mapped, 3 * kPageSize));
  EXPECT_EQ(shadow::first_bad(mapped, 3 * kPageSize + 1), mapped + 3 * kPageSize);
  EXPECT_EQ(shadow_at(mapped + 3 * kPageSize), code(shadow::ShadowTag::kRegionGuard));
  EXPECT_EQ(vmaps_.unmap(mapped, kNoStack), FreeVerdict::kFreed);
}

TEST_F(VmapTest, AfterUnmapTheMappingIsFreedAndThePagesAreNot) {
  const AppAddr mapped = vmaps_.map(pages_.data(), 3, kNoStack);
  ASSERT_EQ(vmaps_.unmap(mapped, kNoStack), FreeVerdict::kFreed);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_FALSE(fine(mapped + i * kPageSize, 1));
  EXPECT_EQ(shadow_at(mapped + 2 * kPageSize), code(shadow::ShadowTag::kRegionFreed));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(fine(pool_.address(pages_[i]), kPageSize));
}

TEST_F(VmapTest, MemoryReusedBehindAMappingIsPrivateAndZero) {
  word(pool_.address(pages_[0])) = 77;
  const AppAddr mapped = vmaps_.map(pages_.data(), 1, kNoStack);
  ASSERT_EQ(vmaps_.unmap(mapped, kNoStack), FreeVerdict::kFreed);
  regions_.purge_all();
  bool met = false;
  std::vector<AppAddr> areas;
  for (int i = 0; i < 600; ++i) {
    const AppAddr area = regions_.allocate({.bytes = kPageSize});
    ASSERT_FALSE(area.is_null());
    met = met || area == mapped;
    EXPECT_EQ(word(area), 0);
    word(area) = 5;
    areas.push_back(area);
  }
  EXPECT_TRUE(met) << "the address was not reused; the claim was not tested";
  EXPECT_EQ(word(pool_.address(pages_[0])), 77);
  for (const AppAddr area : areas) regions_.free(area, kNoStack);
}

TEST_F(VmapTest, EveryWrongUnmapHasItsVerdict) {
  const AppAddr mapped = vmaps_.map(pages_.data(), 2, kNoStack);
  const AppAddr area = regions_.allocate({.bytes = kPageSize});
  EXPECT_EQ(vmaps_.unmap(mapped + kPageSize, kNoStack), FreeVerdict::kInterior);
  EXPECT_EQ(vmaps_.unmap(AppAddr(&area), kNoStack), FreeVerdict::kForeign);
  EXPECT_EQ(vmaps_.unmap(area, kNoStack), FreeVerdict::kForeign);
  EXPECT_EQ(vmaps_.unmap(pool_.address(pages_[0]), kNoStack), FreeVerdict::kForeign);
  EXPECT_TRUE(fine(area, kPageSize));
  EXPECT_EQ(vmaps_.unmap(mapped, kNoStack), FreeVerdict::kFreed);
  EXPECT_EQ(vmaps_.unmap(mapped, kNoStack), FreeVerdict::kDoubleFree);
  EXPECT_EQ(regions_.free(area, kNoStack), FreeVerdict::kFreed);
}

TEST_F(VmapTest, NoPagesOrNoneOfOursIsInvalid) {
  Page unknown;
  Page* const wrong[] = {pages_[0], &unknown};
  errno = 0;
  EXPECT_TRUE(vmaps_.map(wrong, 2, kNoStack).is_null());
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_TRUE(vmaps_.map(pages_.data(), 0, kNoStack).is_null());
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_TRUE(map_ram_.map(wrong, 2, kNoStack).is_null());
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_TRUE(map_ram_.map(pages_.data(), 0, kNoStack).is_null());
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(VmapTest, AnyRefusedCallIsNullAndLeavesNothing) {
  Page* const order[] = {pages_[7], pages_[3], pages_[4]};
  for (const bool ram : {false, true}) {
    bool reached = true;
    for (std::uint64_t number = 0; reached; ++number) {
      ASSERT_LT(number, 100u);
      const std::uint64_t live = regions_.stats().live_areas;
      CallFailer::arm(number);
      const AppAddr mapped = ram ? map_ram_.map(order, 3, kNoStack) : vmaps_.map(order, 3, kNoStack);
      reached = CallFailer::disarm();
      if (!mapped.is_null()) {
        const FreeVerdict verdict = ram ? map_ram_.unmap(mapped, 3, kNoStack) : vmaps_.unmap(mapped, kNoStack);
        EXPECT_EQ(verdict, FreeVerdict::kFreed);
      }
      map_ram_.trim();
      regions_.purge_all();
      EXPECT_EQ(regions_.stats().live_areas, live);
      regions_.validate();
    }
  }
}

TEST_F(VmapTest, RamMappingsAliasTheirPagesAndEndAtOnce) {
  for (const std::size_t count : {1u, 2u, 63u, 64u, 65u, 80u}) {
    const AppAddr mapped = map_ram_.map(pages_.data(), count, kNoStack);
    ASSERT_FALSE(mapped.is_null()) << count;
    for (std::size_t i = 0; i < count; ++i) {
      word(mapped + i * kPageSize) = static_cast<int>(i);
      EXPECT_EQ(word(pool_.address(pages_[i])), static_cast<int>(i));
    }
    EXPECT_TRUE(fine(mapped, count * kPageSize));
    EXPECT_EQ(shadow::first_bad(mapped, count * kPageSize + 1), mapped + count * kPageSize);
    EXPECT_EQ(map_ram_.unmap(mapped, count, kNoStack), FreeVerdict::kFreed);
    EXPECT_EQ(shadow::first_bad(mapped + 5, 1), mapped + 5);
    EXPECT_EQ(shadow_at(mapped), code(shadow::ShadowTag::kRegionFreed));
  }
}

TEST_F(VmapTest, EveryWrongRamUnmapHasItsVerdict) {
  const AppAddr mapped = map_ram_.map(pages_.data(), 4, kNoStack);
  EXPECT_EQ(map_ram_.unmap(mapped, 3, kNoStack), FreeVerdict::kInterior);
  EXPECT_EQ(map_ram_.unmap(mapped + kPageSize, 3, kNoStack), FreeVerdict::kInterior);
  EXPECT_EQ(map_ram_.unmap(mapped + 8, 4, kNoStack), FreeVerdict::kInterior);
  EXPECT_EQ(map_ram_.unmap(AppAddr(&mapped), 4, kNoStack), FreeVerdict::kForeign);
  EXPECT_EQ(map_ram_.unmap(mapped, 0, kNoStack), FreeVerdict::kInterior);
  EXPECT_TRUE(fine(mapped, 4 * kPageSize));
  EXPECT_EQ(map_ram_.unmap(mapped, 4, kNoStack), FreeVerdict::kFreed);
  EXPECT_EQ(map_ram_.unmap(mapped, 4, kNoStack), FreeVerdict::kDoubleFree);
  map_ram_.trim();
  EXPECT_EQ(map_ram_.unmap(mapped, 4, kNoStack), FreeVerdict::kDoubleFree);
}

TEST_F(VmapTest, ABlockGoesBackWithItsLastMapping) {
  const AppAddr kept = map_ram_.map(pages_.data(), 1, kNoStack);
  for (int i = 0; i < 1000; ++i) {
    const AppAddr mapped = map_ram_.map(pages_.data(), 3, kNoStack);
    ASSERT_FALSE(mapped.is_null());
    ASSERT_EQ(map_ram_.unmap(mapped, 3, kNoStack), FreeVerdict::kFreed);
  }
  // The one that `kept` lies in, and at most one current block a CPU.
  EXPECT_LE(map_ram_.blocks(), 1 + os::possible_cpus());
  EXPECT_TRUE(fine(kept, kPageSize));
  ASSERT_EQ(map_ram_.unmap(kept, 1, kNoStack), FreeVerdict::kFreed);
}

TEST_F(VmapTest, ThreadsMapAndUnmapWithoutSharingAnything) {
  std::atomic<bool> wrong{false};
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::pair<AppAddr, std::size_t>> mine;
    for (int step = 0; step < 2000; ++step) {
      if (mine.size() < 8 || random() % 2 == 0) {
        const std::size_t count = 1 + random() % 40;
        const AppAddr mapped = map_ram_.map(pages_.data(), count, kNoStack);
        if (mapped.is_null() || !fine(mapped, count * kPageSize)) wrong = true;
        mine.push_back({mapped, count});
      } else {
        const auto [mapped, count] = mine[random() % mine.size()];
        std::erase(mine, std::pair{mapped, count});
        if (!fine(mapped, count * kPageSize)) wrong = true;
        if (map_ram_.unmap(mapped, count, kNoStack) != FreeVerdict::kFreed) wrong = true;
      }
    }
    for (const auto& [mapped, count] : mine) {
      if (map_ram_.unmap(mapped, count, kNoStack) != FreeVerdict::kFreed) wrong = true;
    }
  };
  std::thread other(work, 1);
  std::thread third(work, 2);
  work(3);
  other.join();
  third.join();
  EXPECT_FALSE(wrong);
}

TEST_F(VmapTest, OfTwoThreadsThatUnmapExactlyOneSucceeds) {
  for (int round = 0; round < 300; ++round) {
    const AppAddr mapped = map_ram_.map(pages_.data(), 2, kNoStack);
    const AppAddr area = vmaps_.map(pages_.data(), 2, kNoStack);
    std::atomic<int> freed{0};
    std::atomic<int> waiting{2};
    const auto work = [&] {
      --waiting;
      while (waiting.load() != 0) std::this_thread::yield();
      if (map_ram_.unmap(mapped, 2, kNoStack) == FreeVerdict::kFreed) ++freed;
      if (vmaps_.unmap(area, kNoStack) == FreeVerdict::kFreed) ++freed;
    };
    std::thread other(work);
    work();
    other.join();
    ASSERT_EQ(freed, 2);
  }
}

}  // namespace
}  // namespace penumbra::region
