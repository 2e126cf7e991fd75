// Per-CPU areas against a model: one offset for all CPUs, exact bounds on each, and chunks that come and go
// whole.

#include "allocator/region/per_cpu.h"

#include "tests/family/family_fixture.h"

#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace penumbra::region {
namespace {

constexpr unsigned kCpus = 3;
using Areas = PerCpuAreas<Regions>;

class PerCpuTest : public FamilyTest {
 protected:
  void TearDown() override {
    areas_.validate();
    areas_.trim();
    EXPECT_EQ(areas_.chunks(), 0u);
    expect_nothing_left();
    FamilyTest::TearDown();
  }

  static AppAddr on(AppAddr object, unsigned cpu) { return object + cpu * Areas::kStride; }

  Areas areas_{regions_, kCpus};
};

TEST_F(PerCpuTest, OneOffsetIsValidOnEveryCpuAndAllCopiesAreApart) {
  const AppAddr a = areas_.allocate(40, 8, kNoStack);
  const AppAddr b = areas_.allocate(40, 8, kNoStack);
  for (unsigned cpu = 0; cpu < kCpus; ++cpu) {
    std::memset(on(a, cpu).ptr<void>(), static_cast<int>(1 + cpu), 40);
    std::memset(on(b, cpu).ptr<void>(), static_cast<int>(11 + cpu), 40);
  }
  for (unsigned cpu = 0; cpu < kCpus; ++cpu) {
    for (std::size_t i = 0; i < 40; ++i) {
      ASSERT_EQ(on(a, cpu).ptr()[i], 1 + cpu);
      ASSERT_EQ(on(b, cpu).ptr()[i], 11 + cpu);
    }
  }
  EXPECT_EQ(areas_.free(a), FreeVerdict::kFreed);
  EXPECT_EQ(areas_.free(b), FreeVerdict::kFreed);
}

TEST_F(PerCpuTest, BoundsAreExactOnEveryCpu) {
  for (const std::size_t bytes : {1u, 7u, 8u, 13u, 100u, 4096u, 32768u}) {
    const AppAddr object = areas_.allocate(bytes, 8, kNoStack);
    ASSERT_FALSE(object.is_null());
    for (unsigned cpu = 0; cpu < kCpus; ++cpu) {
      const AppAddr copy = on(object, cpu);
      EXPECT_TRUE(fine(copy, bytes));
      for (std::size_t over = 1; over <= 16; ++over) {
        EXPECT_EQ(shadow::first_bad(copy, bytes + over), copy + bytes) << bytes << " on " << cpu;
      }
      // Of CPU 0 it is the byte before the area when the object is the first.
      if (cpu > 0) {
        EXPECT_FALSE(fine(copy - 1, 1));
      }
    }
    EXPECT_EQ(areas_.free(object), FreeVerdict::kFreed);
    for (unsigned cpu = 0; cpu < kCpus; ++cpu) {
      EXPECT_EQ(shadow::first_bad(on(object, cpu), 1), on(object, cpu));
      EXPECT_EQ(shadow_at(on(object, cpu)), code(shadow::ShadowTag::kRegionFreed));
    }
  }
}

TEST_F(PerCpuTest, BehindEachUnitLiesAGuard) {
  const AppAddr object = areas_.allocate(8, 8, kNoStack);
  const AppAddr chunk(round_down(object.value, Areas::kUnitBytes));
  for (unsigned cpu = 0; cpu < kCpus; ++cpu) {
    const AppAddr guard = on(chunk, cpu) + Areas::kUnitBytes;
    EXPECT_EQ(shadow_at(guard), code(shadow::ShadowTag::kRegionGuard)) << cpu;
    EXPECT_FALSE(fine(guard + 4095, 1));
  }
  EXPECT_EQ(areas_.free(object), FreeVerdict::kFreed);
}

TEST_F(PerCpuTest, ReusedMemoryReadsZero) {
  for (int round = 0; round < 200; ++round) {
    const AppAddr object = areas_.allocate(2000, 8, kNoStack);
    for (unsigned cpu = 0; cpu < kCpus; ++cpu) {
      for (std::size_t i = 0; i < 2000; ++i) ASSERT_EQ(on(object, cpu).ptr()[i], 0);
      std::memset(on(object, cpu).ptr<void>(), 0xaa, 2000);
    }
    ASSERT_EQ(areas_.free(object), FreeVerdict::kFreed);
  }
}

TEST_F(PerCpuTest, AFreedPlaceIsNotTakenAgainAtOnce) {
  const AppAddr kept = areas_.allocate(8, 8, kNoStack);
  const AppAddr object = areas_.allocate(64, 8, kNoStack);
  ASSERT_EQ(areas_.free(object), FreeVerdict::kFreed);
  for (int i = 0; i < 100; ++i) {
    const AppAddr other = areas_.allocate(64, 8, kNoStack);
    ASSERT_NE(other, object);
    ASSERT_FALSE(fine(object, 1));
    ASSERT_EQ(areas_.free(other), FreeVerdict::kFreed);
  }
  EXPECT_EQ(areas_.free(kept), FreeVerdict::kFreed);
}

TEST_F(PerCpuTest, WhatCannotBeIsInvalid) {
  const struct {
    std::size_t bytes, alignment;
  } kCases[] = {{0, 8}, {Areas::kMaxBytes + 1, 8}, {8, 0}, {8, 24}, {8, 2 * kPageSize}};

  for (const auto& [bytes, alignment] : kCases) {
    errno = 0;
    EXPECT_TRUE(areas_.allocate(bytes, alignment, kNoStack).is_null());
    EXPECT_EQ(errno, EINVAL);
  }
}

TEST_F(PerCpuTest, EveryWrongFreeHasItsVerdict) {
  const AppAddr object = areas_.allocate(100, 8, kNoStack);
  EXPECT_EQ(areas_.free(object + 8), FreeVerdict::kInterior);
  EXPECT_EQ(areas_.free(object + 1), FreeVerdict::kInterior);
  EXPECT_EQ(areas_.free(on(object, 1)), FreeVerdict::kForeign);
  EXPECT_EQ(areas_.free(object + 4096), FreeVerdict::kForeign);
  EXPECT_EQ(areas_.free(AppAddr(&object)), FreeVerdict::kForeign);
  EXPECT_EQ(areas_.free(object), FreeVerdict::kFreed);
  EXPECT_EQ(areas_.free(object), FreeVerdict::kDoubleFree);
}

TEST_F(PerCpuTest, ManyObjectsPackIntoFewChunks) {
  std::mt19937 random(9);
  std::vector<AppAddr> objects;
  std::size_t bytes_taken = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::size_t bytes = 1 + random() % 1024;
    objects.push_back(areas_.allocate(bytes, std::size_t{1} << (1 + random() % 11), kNoStack));
    ASSERT_FALSE(objects.back().is_null());
    bytes_taken += bytes;
  }
  EXPECT_LE(areas_.chunks(), 2 * bytes_taken / Areas::kUnitBytes);
  for (const AppAddr object : objects) ASSERT_EQ(areas_.free(object), FreeVerdict::kFreed);
}

TEST_F(PerCpuTest, RandomProgramsAgreeWithAModel) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);

    struct Object {
      std::size_t bytes;
      int value;
    };

    std::map<std::uintptr_t, Object> model;
    for (int step = 0; step < 6000; ++step) {
      if (model.size() < 50 || random() % 5 < 3) {
        const std::size_t bytes = random() % 20 == 0 ? 1 + random() % Areas::kMaxBytes : 1 + random() % 1024;
        const std::size_t alignment = std::size_t{1} << random() % 13;
        const AppAddr object = areas_.allocate(bytes, alignment, kNoStack);
        ASSERT_FALSE(object.is_null());
        ASSERT_EQ(object.value % alignment, 0u);
        const auto next = model.lower_bound(object.value);
        if (next != model.end()) {
          ASSERT_LE(object.value + bytes, next->first);
        }
        if (next != model.begin()) {
          ASSERT_LE(std::prev(next)->first + std::prev(next)->second.bytes, object.value);
        }
        for (unsigned cpu = 0; cpu < kCpus; ++cpu) {
          ASSERT_TRUE(fine(on(object, cpu), bytes));
          ASSERT_EQ(shadow::first_bad(on(object, cpu), bytes + 1), on(object, cpu) + bytes);
          *on(object, cpu).ptr() = static_cast<std::uint8_t>(step + static_cast<int>(cpu));
        }
        model[object.value] = {bytes, step};
      } else {
        auto victim = model.lower_bound(model.begin()->first + random() % (1 << 20));
        if (victim == model.end()) victim = model.begin();
        const AppAddr object(victim->first);
        for (unsigned cpu = 0; cpu < kCpus; ++cpu) {
          ASSERT_EQ(*on(object, cpu).ptr(), static_cast<std::uint8_t>(victim->second.value + static_cast<int>(cpu)));
        }
        ASSERT_EQ(areas_.free(object), FreeVerdict::kFreed);
        model.erase(victim);
      }
      if (step % 50 == 0) areas_.validate();
    }
    for (const auto& [address, object] : model) ASSERT_EQ(areas_.free(AppAddr(address)), FreeVerdict::kFreed);
  }
}

TEST_F(PerCpuTest, AnyRefusedCallIsNullAndLeavesNothing) {
  bool reached = true;
  for (std::uint64_t number = 0; reached; ++number) {
    ASSERT_LT(number, 100u);
    CallFailer::arm(number);
    errno = 0;
    const AppAddr object = areas_.allocate(100, 8, kNoStack);
    const int error = errno;
    reached = CallFailer::disarm();
    if (object.is_null()) {
      EXPECT_EQ(error, ENOMEM);
    } else {
      EXPECT_EQ(areas_.free(object), FreeVerdict::kFreed);
    }
    areas_.trim();
    regions_.purge_all();
    EXPECT_EQ(areas_.chunks(), 0u);
    EXPECT_EQ(regions_.stats().live_areas, 0u);
    EXPECT_EQ(regions_.stats().shadow_pages, regions_.stats().shadow_pinned);
  }
}

TEST_F(PerCpuTest, ThreadsShareChunksAndNothingElse) {
  std::atomic<bool> wrong{false};
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::pair<AppAddr, std::size_t>> mine;
    for (int step = 0; step < 4000; ++step) {
      if (mine.size() < 30 || random() % 2 == 0) {
        const std::size_t bytes = 1 + random() % 1000;
        const AppAddr object = areas_.allocate(bytes, 8, kNoStack);
        if (object.is_null()) wrong = true;
        for (unsigned cpu = 0; cpu < kCpus; ++cpu) {
          if (*on(object, cpu).ptr() != 0 || !fine(on(object, cpu), bytes)) wrong = true;
          std::memset(on(object, cpu).ptr<void>(), static_cast<int>(seed), bytes);
        }
        mine.push_back({object, bytes});
      } else {
        const auto [object, bytes] = mine[random() % mine.size()];
        for (unsigned cpu = 0; cpu < kCpus; ++cpu) {
          if (on(object, cpu).ptr()[bytes - 1] != seed) wrong = true;
        }
        if (areas_.free(object) != FreeVerdict::kFreed) wrong = true;
        std::erase(mine, std::pair{object, bytes});
      }
    }
    for (const auto& [object, bytes] : mine) {
      if (areas_.free(object) != FreeVerdict::kFreed) wrong = true;
    }
  };
  std::thread other(work, 1);
  work(2);
  other.join();
  EXPECT_FALSE(wrong);
}

}  // namespace
}  // namespace penumbra::region
