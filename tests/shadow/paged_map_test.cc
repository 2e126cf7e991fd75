// The paged map by itself: tables and pages come when something is poisoned, never when something is checked; pages of
// units go round behind a flush; and a signal handler inside a reader changes nobody's answer. Runs only where the process
// has the paged map; that it answers as the direct one does is what the other suites show by running on both.
#include "shadow/paged_map.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <thread>
#include <vector>

#include "shadow/check.h"
#include "shadow/poison.h"
#include "shadow/units.h"
#include "tests/support/shadow_map.h"

namespace penumbra::shadow {
namespace {

// Nothing is mapped at the addresses that these tests use: shadow does not need it.
constexpr AppAddr kFar(std::uintptr_t{0x2345} << 32);

class Paged : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!tests_paged_map()) GTEST_SKIP() << "not the map of this run";
    ASSERT_TRUE(reserve_test_map().ok());
  }
  void TearDown() override {
    if (!tests_paged_map()) return;
    map_.validate();
    map_.clear(kFar, kFar + (std::size_t{1} << 36));
  }

  PagedMap& map_ = internal::g_paged_map;
};

TEST_F(Paged, ChecksAndUnpoisoningTakeNoTableAndNoPage) {
  const std::uint32_t pages = map_.pages();
  const std::uint32_t tables = map_.tables();
  EXPECT_EQ(first_bad(kFar, std::size_t{1} << 40), kNoBadByte);
  EXPECT_EQ(first_nonzero(kFar, kFar + (std::size_t{1} << 40)), kFar + (std::size_t{1} << 40));
  unpoison(kFar, 1 << 20);
  clear_stale(kFar, std::size_t{1} << 40);
  EXPECT_EQ(map_.pages(), pages);
  EXPECT_EQ(map_.tables(), tables);
}

TEST_F(Paged, PoisonTakesOnePageAUnitAndTwoTablesAPlace) {
  const AppAddr place = kFar + (std::size_t{3} << 40);
  const std::uint32_t pages = map_.pages();
  const std::uint32_t tables = map_.tables();
  poison(place + kUnitSize - 16, 32, ShadowTag::kUserPoison);
  EXPECT_EQ(map_.pages(), pages + 2);
  EXPECT_EQ(map_.tables(), tables + 2);
  EXPECT_EQ(first_bad(place, 2 * kUnitSize), place + kUnitSize - 16);
  EXPECT_EQ(first_bad(place + kUnitSize, 8), place + kUnitSize);
  EXPECT_EQ(first_bad(place + kUnitSize + 16, kUnitSize), kNoBadByte);
  map_.clear(place, place + 2 * kUnitSize);
  EXPECT_EQ(first_bad(place, 2 * kUnitSize), kNoBadByte);
}

// Over the edges of pages, leaf and middle tables, where a range has to go on in the next.
TEST_F(Paged, AgreesWithTheByteLoopAcrossEveryKindOfEdge) {
  std::mt19937 random(15);
  for (const std::size_t edge : {kUnitSize, kUnitSize << 10, kUnitSize << 20}) {
    const AppAddr middle(round_up(kFar.value, edge));
    for (int round = 0; round < 200; ++round) {
      map_.clear(middle - 256, middle + 256);
      for (int n = random() % 3; n > 0; --n) {
        const std::uint8_t values[] = {0xf7, 1, 5, 7, 0xfc};
        map_.store(middle - 256 + 8 * (random() % 64), values[random() % 5]);
      }
      const std::size_t from = random() % 256;
      const std::size_t size = random() % 256;
      const AppAddr begin = middle - 256 + from;
      ASSERT_EQ(first_bad(begin, size), first_bad_reference(begin, size)) << edge << " seed 15 round " << round;
    }
    map_.clear(middle - 256, middle + 256);
  }
}

TEST_F(Paged, ADetachedPageIsNobodysUntilTheFlush) {
  ASSERT_TRUE(map_.fill(kFar, 0xf8));
  std::uint8_t* const page = map_.page_of(kFar);
  ASSERT_NE(page, nullptr);
  const std::uint32_t pages = map_.pages();
  map_.detach(kFar);
  EXPECT_EQ(map_.page_of(kFar), nullptr);
  EXPECT_EQ(map_.pages(), pages);
  ASSERT_TRUE(map_.fill(kFar + kUnitSize, 0xf8));
  EXPECT_NE(map_.page_of(kFar + kUnitSize), page);
  map_.flush();
  ASSERT_TRUE(map_.fill(kFar + 2 * kUnitSize, 0xe3));
  EXPECT_EQ(map_.page_of(kFar + 2 * kUnitSize), page);
  EXPECT_EQ(map_.load(kFar), 0);
  for (std::size_t n = 1; n <= 2; ++n) map_.detach(kFar + n * kUnitSize);
  map_.flush();
}

// Untouched shadow is not remembered, so that poison is seen without a flush.
TEST_F(Paged, PoisonIsSeenByAThreadThatReadTheEarlyPageBefore) {
  EXPECT_EQ(first_bad(kFar, 8), kNoBadByte);
  poison(kFar, 8, ShadowTag::kUserPoison);
  EXPECT_EQ(first_bad(kFar, 8), kFar);
}

TEST_F(Paged, ThreadsThatPublishTheSamePageAgreeOnIt) {
  for (int round = 0; round < 200; ++round) {
    const AppAddr unit = kFar + (16 + round) * kUnitSize;
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 3; ++t) {
      threads.emplace_back([this, unit, t] { map_.store(unit + 8 * t, static_cast<std::uint8_t>(0xf1 + t)); });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t t = 0; t < 3; ++t) ASSERT_EQ(map_.load(unit + 8 * t), 0xf1 + t);
  }
}

// Units are filled, flushed and filled again while a reader looks: their pages go round, and are never seen by the wrong
// unit (memory ruling 16 through the whole map).
TEST_F(Paged, ReadersNeverSeeThePageOfAnotherUnit) {
  constexpr std::size_t kUnits = 8;
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  const auto mark = [](std::size_t u) { return static_cast<std::uint8_t>(0x80 + u); };
  std::thread reader([&] {
    for (std::size_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
      const std::size_t u = i % kUnits;
      const bool is_own = map_.read(kFar + u * kUnitSize, [&](const std::uint8_t* page) {
        for (std::size_t at = 0; at < kPageSize; at += 512) {
          const std::uint8_t byte =
              std::atomic_ref(const_cast<std::uint8_t&>(page[at])).load(std::memory_order_relaxed);
          if (byte != 0 && byte != mark(u)) return false;
        }
        return true;
      });
      if (!is_own) wrong.fetch_add(1);
    }
  });
  for (std::size_t i = 0; i < 20000; ++i) {
    const std::size_t u = i * 5 % kUnits;
    if (map_.page_of(kFar + u * kUnitSize) != nullptr) {
      map_.detach(kFar + u * kUnitSize);
      map_.flush();
    } else if (i % 3 != 0) {
      ASSERT_TRUE(map_.fill(kFar + u * kUnitSize, mark(u)));
    }
  }
  stop.store(true);
  reader.join();
  EXPECT_EQ(wrong.load(), 0);
  for (std::size_t u = 0; u < kUnits; ++u) map_.detach(kFar + u * kUnitSize);
  map_.flush();
}

// In a child of its own: what may be reserved is limited there for good.
template <class Body>
int exit_status_of(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(PagedMap, WherePagesRunOutPoisonIsMissedAndCountedAndAFillFails) {
  static PagedMap map;
  ASSERT_TRUE(map.init(2).ok());
  EXPECT_TRUE(map.store(kFar, 0xf7));
  EXPECT_TRUE(map.fill(kFar + kUnitSize, 0xf8));
  EXPECT_FALSE(map.fill(kFar + 2 * kUnitSize, 0xf8));
  EXPECT_FALSE(map.set(kFar, 2 * kPageSize + 100, 0xf7)) << "the third unit has no page";
  EXPECT_EQ(map.missed_poison(), 100u);
  EXPECT_EQ(map.load(kFar + kUnitSize), 0xf7);
  EXPECT_EQ(map.load(kFar + 2 * kUnitSize), 0);
  map.validate();
  map.destroy();
}

TEST(PagedMap, ATakeThatFindsNoPageUnwindsWhatItTook) {
  const int status = exit_status_of([] {
    if (internal::g_paged_map.is_initialized()) internal::g_paged_map.destroy();
    if (!internal::g_paged_map.init(20).ok()) return 1;
    internal::g_map_kind = MapKind::kPaged;
    static UnitMap units;
    if (!units.init({kFar, kFar + UnitMap::kZoneSize}, ShadowAddr(), nullptr, nullptr).ok()) return 2;
    if (units.take(kFar, 40 * kUnitSize, ShadowTag::kRegionInvalid)) return 3;
    for (std::size_t n = 0; n < 16; ++n) {
      // What was filled before is dying poison, what was not is empty.
      const UnitState state = units.view(kFar + n * kUnitSize).state;
      if (state != UnitState::kDying && state != UnitState::kEmpty) return 4;
    }
    if (units.view(kFar + 20 * kUnitSize).state != UnitState::kEmpty) return 5;
    units.validate();
    return units.take(kFar, 10 * kUnitSize, ShadowTag::kRegionInvalid) ? 0 : 6;
  });
  EXPECT_EQ(status, 0);
}

TEST(PagedMap, ReservesWhatALimitOnAddressSpaceLeavesRoomFor) {
  const int status = exit_status_of([] {
    internal::g_map_kind = MapKind::kNone;  // the parent's map, in a child that only asks
    if (internal::g_paged_map.is_initialized()) internal::g_paged_map.destroy();
    // As `ulimit -v` leaves it: what is mapped and 1.9 GiB.
    std::size_t pages = 0;
    FILE* const statm = std::fopen("/proc/self/statm", "r");
    if (statm == nullptr || std::fscanf(statm, "%zu", &pages) != 1) return 1;
    const rlim_t most = pages * kPageSize + (std::size_t{1900} << 20);
    const rlimit limit{most, most};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 2;
    if (!reserve_paged_map(std::size_t{1} << 40).ok()) return 3;
    if (paged_app_bytes() != std::size_t{1} << 30) return 4;
    // The span it was measured for still fits.
    return os::reserve(AppAddr(), std::size_t{1} << 30).ok() ? 0 : 5;
  });
  EXPECT_EQ(status, 0);
}

// F3 of frames.h: nothing is writable before it is needed, so strict overcommit sees no commitment.
TEST(PagedMap, FramesAreOpenedInSteps) {
  FramePool pool;
  ASSERT_TRUE(pool.init(1024).ok());
  std::uint8_t* const first = pool.take();
  ASSERT_NE(first, nullptr);
  first[0] = 1;
  EXPECT_FALSE(os::try_read_memory(AppAddr(first) + (std::size_t{1} << 20), first, 1)) << "the next step is closed";
  for (int n = 1; n < 257; ++n) *pool.take() = 1;
  EXPECT_TRUE(os::try_read_memory(AppAddr(first) + (std::size_t{1} << 20), first, 1));
  pool.destroy();
}

int refuse_protect(os::MemoryCall call) {
  return call == os::MemoryCall::kProtect ? ENOMEM : 0;
}

TEST(PagedMap, AKernelThatOpensNoMoreMeansNoPageAndNothingWorse) {
  FramePool pool;
  ASSERT_TRUE(pool.init(1024).ok());
  for (int n = 0; n < 256; ++n) ASSERT_NE(pool.take(), nullptr);
  os::set_failure_injector_test_only(refuse_protect);
  EXPECT_EQ(pool.take(), nullptr);
  os::set_failure_injector_test_only(nullptr);
  EXPECT_NE(pool.take(), nullptr);
  EXPECT_EQ(pool.taken(), 257u);
  pool.destroy();
}

// What a signal handler does between any two steps of its thread's reader, made to happen: the walk of one page is
// interrupted by reads of others that use the same entry.
TEST(SoftTlb, AHandlerInsideAReaderChangesNobodysAnswer) {
  Tlb tlb;
  SoftTlb mine;
  static std::uint8_t frames[4][1] = {{10}, {20}, {30}, {40}};
  const auto frame_of = [](std::size_t page) -> const std::uint8_t* { return frames[page / SoftTlb::kEntries]; };
  const auto value = [](const std::uint8_t* frame) -> int { return *frame; };
  const auto quietly = [&](std::size_t page) { return mine.read(tlb, page, frame_of, value); };
  for (std::size_t mine_page = 0; mine_page < 4; ++mine_page) {
    for (std::size_t theirs = 0; theirs < 4; ++theirs) {
      tlb.flush(1, 1);
      const int seen = mine.read(
          tlb, mine_page * SoftTlb::kEntries,
          [&](std::size_t page) {
            const std::uint8_t* const frame = frame_of(page);
            EXPECT_EQ(quietly(theirs * SoftTlb::kEntries), frames[theirs][0]);
            return frame;
          },
          [&](const std::uint8_t* frame) -> int {
            EXPECT_EQ(quietly(theirs * SoftTlb::kEntries), frames[theirs][0]);
            return *frame;
          });
      EXPECT_EQ(seen, frames[mine_page][0]);
      for (std::size_t page = 0; page < 4; ++page) EXPECT_EQ(quietly(page * SoftTlb::kEntries), frames[page][0]);
    }
  }
}

}  // namespace
}  // namespace penumbra::shadow
