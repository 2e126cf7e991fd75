// The state word of a shadow page: every transition by itself, then all of them at once from several threads. The
// shadow is memory of the test's own, so nothing here needs the direct map; or pages of the paged map.
#include "shadow/units.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "shadow/check.h"
#include "tests/support/shadow_map.h"

namespace penumbra::shadow {
namespace {

constexpr std::size_t kSpanBytes = 4 * UnitMap::kZoneSize;

class Units : public ::testing::Test {
 protected:
  void SetUp() override {
    const os::Result span = os::reserve(AppAddr(), kSpanBytes + UnitMap::kZoneSize);
    ASSERT_TRUE(span.ok());
    begin_ = AppAddr(round_up(span.address().value, UnitMap::kZoneSize));
    if (tests_paged_map()) {
      ASSERT_TRUE(reserve_test_map().ok());
    } else {
      const os::Result shadow = os::map_anonymous(kSpanBytes >> kGranuleShift);
      ASSERT_TRUE(shadow.ok());
      shadow_ = ShadowAddr(shadow.address().value);
    }
    ASSERT_TRUE(units_.init({begin_, begin_ + kSpanBytes}, shadow_, nullptr, nullptr).ok());
  }
  void TearDown() override {
    os::set_failure_injector_test_only(nullptr);
    units_.destroy();
    if (tests_paged_map()) {
      internal::g_paged_map.validate();
      drop_shadow(begin_, kSpanBytes);
    } else {
      os::unmap(AppAddr(shadow_.value), kSpanBytes >> kGranuleShift).ignore();
    }
  }

  AppAddr unit(std::size_t n) const { return begin_ + n * kUnitSize; }
  UnitState state(std::size_t n) const { return units_.view(unit(n)).state; }
  std::uint8_t byte(AppAddr a) const { return units_.shadow_byte(a); }
  bool take(std::size_t first, std::size_t count) {
    return units_.take(unit(first), count * kUnitSize, ShadowTag::kRegionInvalid);
  }
  void release(std::size_t first, std::size_t count) { units_.release(unit(first), count * kUnitSize); }
  // One flush as a purger does it; returns the shadow pages that went.
  std::size_t flush(std::size_t keep = 0) {
    iovec ranges[64];
    std::size_t pages = 0;
    const std::size_t count = units_.begin_flush(keep, ranges, 64);
    for (std::size_t i = 0; i < count; ++i) {
      pages += ranges[i].iov_len / kPageSize;
      EXPECT_TRUE(os::advise(AppAddr(ranges[i].iov_base), ranges[i].iov_len, MADV_DONTNEED).ok());
    }
    units_.end_flush();
    return pages;
  }
  std::size_t resident_pages() const {
    if (tests_paged_map()) {
      std::size_t pages = 0;
      for (std::size_t n = 0; n < kSpanBytes / kUnitSize; ++n) {
        // One that was cleared keeps its place in the table, without memory.
        unsigned char is_in_core = 0;
        std::uint8_t* const page = internal::g_paged_map.page_of(unit(n));
        if (page != nullptr) EXPECT_EQ(mincore(page, kPageSize, &is_in_core), 0);
        pages += is_in_core & 1;
      }
      return pages;
    }
    std::vector<unsigned char> map((kSpanBytes >> kGranuleShift) / kPageSize);
    EXPECT_EQ(mincore(shadow_.ptr<void>(), kSpanBytes >> kGranuleShift, map.data()), 0);
    return static_cast<std::size_t>(std::count_if(map.begin(), map.end(), [](unsigned char c) { return c & 1; }));
  }

  AppAddr begin_;
  ShadowAddr shadow_;
  UnitMap units_;
};

TEST_F(Units, FirstTakerFillsAndLaterOnesOnlyCount) {
  ASSERT_TRUE(take(3, 1));
  EXPECT_EQ(state(3), UnitState::kReady);
  for (std::size_t i = 0; i < kPageSize; ++i) ASSERT_EQ(byte(unit(3) + i * kGranuleSize), 0xf8);
  units_.set(unit(3), 1, 0);  // a neighbour's live byte
  ASSERT_TRUE(take(3, 1));
  EXPECT_EQ(byte(unit(3)), 0);
  EXPECT_EQ(units_.view(unit(3)).count, 2u);
  EXPECT_EQ(resident_pages(), 1u);
  units_.validate();
}

TEST_F(Units, TagOfTheFillIsTheTakersChoice) {
  ASSERT_TRUE(units_.ensure_ready(unit(1), kUnitSize, ShadowTag::kHeapNeverAllocated));
  EXPECT_EQ(byte(unit(1)), 0xe8);
  ASSERT_TRUE(units_.ensure_ready(unit(1), kUnitSize, ShadowTag::kHeapNeverAllocated));
  EXPECT_EQ(units_.view(unit(1)).count, 1u);
}

TEST_F(Units, LastReleaseMakesAUnitDieAndAFlushMakesItEmpty) {
  ASSERT_TRUE(take(0, 1));
  ASSERT_TRUE(take(0, 1));
  release(0, 1);
  EXPECT_EQ(state(0), UnitState::kReady);
  release(0, 1);
  EXPECT_EQ(state(0), UnitState::kDying);
  EXPECT_TRUE(units_.view(unit(0)).queued);
  EXPECT_EQ(units_.dying(), 1u);
  units_.validate();
  EXPECT_EQ(flush(), 1u);
  EXPECT_EQ(state(0), UnitState::kEmpty);
  EXPECT_EQ(units_.view(unit(0)).generation, 1u);
  EXPECT_EQ(units_.resident(), 0u);
  EXPECT_EQ(resident_pages(), 0u);
  units_.validate();
}

TEST_F(Units, TakerRescuesADyingUnitWithoutRefillingIt) {
  ASSERT_TRUE(take(0, 1));
  units_.set(unit(0) + 7 * kGranuleSize, 1, 0xe3);
  release(0, 1);
  ASSERT_TRUE(take(0, 1));
  EXPECT_EQ(state(0), UnitState::kReady);
  EXPECT_EQ(byte(unit(0) + 7 * kGranuleSize), 0xe3);
  EXPECT_TRUE(units_.view(unit(0)).queued);
  // The purger drops the entry instead of the shadow.
  EXPECT_EQ(units_.dying(), 0u);
  iovec ranges[4];
  EXPECT_EQ(units_.begin_flush(0, ranges, 4), 0u);
  units_.end_flush();
  EXPECT_EQ(state(0), UnitState::kReady);
  units_.validate();
}

TEST_F(Units, RescuedUnitThatDiesAgainIsQueuedOnce) {
  ASSERT_TRUE(take(0, 1));
  for (int i = 0; i < 5; ++i) {
    release(0, 1);
    ASSERT_TRUE(take(0, 1));
  }
  release(0, 1);
  units_.validate();
  EXPECT_EQ(flush(), 1u);
  units_.validate();
}

TEST_F(Units, NeighboursFlushAsOneRange) {
  ASSERT_TRUE(take(10, 20));
  release(10, 20);
  iovec ranges[20];
  const std::size_t count = units_.begin_flush(0, ranges, 20);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) bytes += ranges[i].iov_len;
  EXPECT_EQ(bytes, 20 * kPageSize);
  // Pages of the paged map that were used before are nobody's neighbours.
  if (!tests_paged_map()) EXPECT_EQ(count, 1u);
  EXPECT_EQ(state(10), UnitState::kFlushing);
  units_.abort_flush();
  if (tests_paged_map()) {
    // The pages are free in any case: only their memory stays.
    EXPECT_EQ(state(10), UnitState::kEmpty);
    EXPECT_EQ(byte(unit(10)), 0);
  } else {
    EXPECT_EQ(state(10), UnitState::kDying);
    EXPECT_EQ(byte(unit(10)), 0xf8);
  }
  units_.validate();
}

TEST_F(Units, DyingUnitsAreKeptWithinTheBudgetOldestFirstOut) {
  for (std::size_t u = 0; u < 40; u += 2) ASSERT_TRUE(take(u, 1));
  for (std::size_t u = 0; u < 40; u += 2) release(u, 1);
  EXPECT_EQ(flush(5), 15u);
  EXPECT_EQ(units_.dying(), 5u);
  EXPECT_EQ(state(28), UnitState::kEmpty);
  EXPECT_EQ(state(30), UnitState::kDying);
  units_.validate();
}

TEST_F(Units, PinnedUnitStaysWhenItsLastTakerLeaves) {
  ASSERT_TRUE(take(0, 2));
  units_.pin(unit(0), kUnitSize);
  units_.pin(unit(0), kUnitSize);
  EXPECT_EQ(units_.pinned(), 1u);
  release(0, 2);
  EXPECT_EQ(flush(), 1u);
  EXPECT_EQ(state(0), UnitState::kReady);
  units_.validate();
  units_.unpin(unit(0), 2 * kUnitSize);
  EXPECT_EQ(flush(), 1u);
  EXPECT_EQ(units_.resident(), 0u);
}

TEST_F(Units, FailedMultiUnitTakeUnwindsWhatItTook) {
  if (tests_paged_map()) GTEST_SKIP() << "there pages run out: PagedMap.ATakeThatFindsNoPageUnwindsWhatItTook";
  ASSERT_TRUE(take(2, 1));  // between two runs of empty units
  static int calls;
  for (int failing = 0; failing < 3; ++failing) {
    calls = 0;
    static int fail_at;
    fail_at = failing;
    os::set_failure_injector_test_only(
        [](os::MemoryCall call) { return call == os::MemoryCall::kAdvise && calls++ == fail_at ? ENOMEM : 0; });
    const bool taken = take(0, 40);
    os::set_failure_injector_test_only(nullptr);
    EXPECT_FALSE(taken) << failing;
    EXPECT_EQ(units_.view(unit(2)).count, 1u);
    flush();
    EXPECT_EQ(units_.resident(), 1u);
    EXPECT_EQ(resident_pages(), 1u);
    units_.validate();
  }
  EXPECT_TRUE(take(0, 40));
}

TEST_F(Units, SparseTakeLeavesEmptyUnitsAloneAndClearsLeftovers) {
  ASSERT_TRUE(take(5, 1));
  release(5, 1);
  units_.take_sparse(unit(0), 300 * kUnitSize);
  EXPECT_EQ(state(0), UnitState::kEmpty);
  EXPECT_EQ(state(5), UnitState::kReady);
  for (std::size_t i = 0; i < kPageSize; ++i) ASSERT_EQ(byte(unit(5) + i * kGranuleSize), 0);
  units_.set(unit(9), 1, 0xf7);  // poisoned by the program
  units_.forbid_sparse(unit(0), 300 * kUnitSize, ShadowTag::kRegionFreed);
  EXPECT_EQ(resident_pages(), 1u);
  EXPECT_EQ(byte(unit(5)), 0xe3);
  units_.release_sparse(unit(0), 300 * kUnitSize);
  flush();
  EXPECT_EQ(resident_pages(), 0u);
  units_.validate();
}

TEST_F(Units, FirstUnpopulatedNamesTheFirstByteOfAnEmptyUnit) {
  ASSERT_TRUE(take(1, 2));
  EXPECT_EQ(units_.first_unpopulated(unit(1), unit(3)), kNoBadByte);
  EXPECT_EQ(units_.first_unpopulated(unit(1) + 100, unit(5)), unit(3));
  EXPECT_EQ(units_.first_unpopulated(unit(0) + 17, unit(5)), unit(0) + 17);
  release(1, 2);
  EXPECT_EQ(units_.first_unpopulated(unit(1), unit(3)), kNoBadByte);  // dying: its poison decides
}

// memory ruling 7: a child that skipped the fork hooks, with a fill and a flush of other threads under way.
TEST_F(Units, ChildWithoutForkHooksRefillsAndFlushesAgain) {
  ASSERT_TRUE(take(0, 8));
  release(0, 8);
  iovec ranges[8];
  ASSERT_NE(units_.begin_flush(0, ranges, 8), 0u);  // "another thread" is in the middle of it
  const long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    // The flush will never end here; taking must not wait for it.
    bool good = take(0, 8);
    good = good && state(0) == UnitState::kReady && units_.shadow_byte(unit(0)) == 0xf8;
    units_.validate();
    release(0, 8);
    const std::size_t count = units_.begin_flush(0, ranges, 8);
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) bytes += ranges[i].iov_len;
    good = good && bytes == 8 * kPageSize;
    units_.end_flush();
    _exit(good && units_.resident() == 0 ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  int status = -1;
  ASSERT_EQ(waitpid(static_cast<pid_t>(child), &status, 0), child);
  EXPECT_EQ(status, 0);
  units_.abort_flush();
}

long faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// A shell forks for every command, and each page that a child touches is a fault: 2 TiB have 512 pages of zones.
TEST_F(Units, ChildTouchesOnlyWhatWasUsed) {
  constexpr std::size_t kLarge = std::size_t{2} << 40;
  const os::Result span = os::reserve(AppAddr(), kLarge + UnitMap::kZoneSize);
  ASSERT_TRUE(span.ok());
  const AppAddr begin(round_up(span.address().value, UnitMap::kZoneSize));
  ShadowAddr shadow{};
  if (!tests_paged_map()) {
    const os::Result room = os::map_noreserve(kLarge >> kGranuleShift);
    ASSERT_TRUE(room.ok());
    shadow = ShadowAddr(room.address().value);
  }
  UnitMap map;
  ASSERT_TRUE(map.init({begin, begin + kLarge}, shadow, nullptr, nullptr).ok());
  ASSERT_TRUE(map.take(begin + kLarge / 2, 10 * kUnitSize, ShadowTag::kRegionInvalid));
  ASSERT_TRUE(map.take(begin + kLarge / 4 * 3, kUnitSize, ShadowTag::kRegionInvalid));
  const pid_t child = fork();
  if (child == 0) {
    const long before = faults();
    map.repair_after_fork();
    const long taken = faults() - before;
    map.validate();
    _exit(map.resident() == 11 && taken < 64 ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  map.release(begin + kLarge / 2, 10 * kUnitSize);
  map.release(begin + kLarge / 4 * 3, kUnitSize);
  iovec ranges[16];
  map.begin_flush(0, ranges, 16);
  map.end_flush();
  EXPECT_EQ(map.resident(), 0u);
  map.destroy();
  if (!tests_paged_map()) os::unmap(AppAddr(shadow.value), kLarge >> kGranuleShift).ignore();
  os::unmap(span.address(), kLarge + UnitMap::kZoneSize).ignore();
}

// Threads take and release overlapping ranges while one purges; afterwards nothing is left. What a taker sees
// between take and release is a page of poison or of other takers' marks, never zero.
TEST_F(Units, ConcurrentTakesReleasesAndFlushesLeaveNothing) {
  constexpr int kThreads = 3;
  constexpr int kRounds = 4000;
  std::atomic<int> running{kThreads};
  std::atomic<int> zeros{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < kRounds; ++i) {
        const std::size_t first = random() % 24;
        const std::size_t count = 1 + random() % 4;
        if (!take(first, count)) continue;
        for (std::size_t u = first; u < first + count; ++u) {
          for (std::size_t at : {std::size_t{0}, std::size_t{2048}, std::size_t{4095}}) {
            if (byte(unit(u) + at * kGranuleSize) == 0) zeros.fetch_add(1);
          }
        }
        release(first, count);
      }
      running.fetch_sub(1);
    });
  }
  std::size_t flushed = 0;
  while (running.load() != 0) flushed += flush(2);
  for (std::thread& thread : threads) thread.join();
  flushed += flush();
  EXPECT_EQ(zeros.load(), 0);
  EXPECT_GT(flushed, 24u);
  EXPECT_EQ(units_.resident(), 0u);
  EXPECT_EQ(resident_pages(), 0u);
  units_.validate();
}

}  // namespace
}  // namespace penumbra::shadow
