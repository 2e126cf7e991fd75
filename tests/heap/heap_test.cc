// The heap's contract, on real mimalloc blocks: shadow around objects, verdicts of frees, quarantine, arenas.
#include "allocator/heap/heap.h"

#include "allocator/heap/layout.h"
#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"
#include "tests/heap/heap_fixture.h"

#include <errno.h>

#include <chrono>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace penumbra::heap {
namespace {

using shadow::ShadowTag;

// Sizes around every step of the redzone table, granules, mimalloc's classes and the largest block.
std::vector<std::size_t> interesting_sizes() {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 0; bytes <= 160; ++bytes) sizes.push_back(bytes);
  for (const std::size_t step :
       {448u, 1024u, 3968u, 4096u, 16128u, 32256u, 64512u, 131072u, 262144u, 300000u, 5000000u}) {
    for (std::size_t bytes = step - 2; bytes <= step + 2; ++bytes) sizes.push_back(bytes);
  }
  return sizes;
}

TEST_F(HeapTest, ExactlyTheRequestedBytesAreAccessible) {
  for (const std::size_t bytes : interesting_sizes()) {
    char* const p = allocate(bytes);
    ASSERT_NE(p, nullptr) << bytes;
    EXPECT_TRUE(accessible(p, bytes)) << bytes;
    EXPECT_FALSE(accessible(p - 1, 1)) << bytes;
    EXPECT_FALSE(accessible(p - 16, 1)) << bytes;
    EXPECT_FALSE(accessible(p + bytes, 1)) << bytes;
    EXPECT_EQ(requested_bytes(p), bytes);
    EXPECT_EQ(release(p), FreeVerdict::kFreed);
  }
}

TEST_F(HeapTest, TheRightRedzoneHasKasansSize) {
  for (const std::size_t bytes : interesting_sizes()) {
    char* const p = allocate(bytes);
    for (std::size_t i = 0; i < right_redzone(bytes) && bytes < kLargestBlock; i += 8) {
      ASSERT_FALSE(accessible(p + bytes + i, 1)) << bytes << " + " << i;
    }
    release(p);
  }
}

TEST_F(HeapTest, EveryAlignmentIsKept) {
  for (std::size_t alignment = 16; alignment <= (4u << 20); alignment *= 2) {
    for (const std::size_t bytes : {0u, 1u, 24u, 1000u, 70000u, 400000u}) {
      char* const p = allocate(bytes, alignment);
      ASSERT_NE(p, nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % alignment, 0u);
      EXPECT_TRUE(accessible(p, bytes));
      EXPECT_FALSE(accessible(p - 1, 1)) << alignment << " " << bytes;
      EXPECT_FALSE(accessible(p + bytes, 1));
      EXPECT_EQ(inspect(p).alignment, alignment);
      EXPECT_EQ(release(p), FreeVerdict::kFreed);
      EXPECT_EQ(release(p), FreeVerdict::kDoubleFree) << alignment << " " << bytes;
    }
  }
}

TEST_F(HeapTest, ZeroedMemoryReadsZeroAlsoWhenReused) {
  for (const std::size_t bytes : {1u, 16u, 100u, 5000u, 200000u}) {
    for (int round = 0; round < 30; ++round) {
      Request request;
      request.bytes = bytes;
      request.zero = true;
      auto* const p = static_cast<char*>(heap::allocate(request));
      for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(p[i], 0);
      std::memset(p, 0x55, bytes);
      release(p);
      drain_quarantine();
    }
  }
}

TEST_F(HeapTest, FreshMemoryIsFilledWithJunkUpToTheOption) {
  for (const std::size_t bytes : {1u, 100u, 4096u, 10000u, 400000u}) {
    auto* const p = reinterpret_cast<unsigned char*>(allocate(bytes));
    for (std::size_t i = 0; i < std::min<std::size_t>(bytes, 4096); ++i) ASSERT_EQ(p[i], 0xbe) << i;
    release(p);
  }
}

TEST_F(HeapTest, AFreedObjectIsPoisonedAtOnce) {
  for (const std::size_t bytes : {1u, 8u, 100u, 5000u, 200000u}) {
    char* const p = allocate(bytes);
    release(p);
    EXPECT_EQ(shadow_at(p), static_cast<std::uint8_t>(ShadowTag::kHeapFreed));
    EXPECT_EQ(shadow_at(p + bytes - 1), static_cast<std::uint8_t>(ShadowTag::kHeapFreed));
  }
}

TEST_F(HeapTest, ASecondFreeIsADoubleFreeInQuarantineAndAfterIt) {
  char* const p = allocate(100);
  EXPECT_EQ(release(p), FreeVerdict::kFreed);
  EXPECT_EQ(release(p), FreeVerdict::kDoubleFree);
  drain_quarantine();
  EXPECT_EQ(release(p), FreeVerdict::kDoubleFree);
  EXPECT_EQ(requested_bytes(p), ~std::size_t{0});
}

TEST_F(HeapTest, OfTwoThreadsThatFreeOneObjectAtOnceExactlyOneWins) {
  // Rounds in which both free the same object as simultaneously as two threads can. A free that looked at the state and
  // then wrote it would let both win, as soon as they really run side by side.
  std::atomic<char*> object{nullptr};
  std::atomic<bool> stop{false};
  std::atomic<int> other_wins{0};
  std::atomic<int> other_done{0};
  std::thread other([&] {
    while (!stop) {
      char* const p = object.exchange(nullptr);
      if (p == nullptr) continue;
      if (release(p) == FreeVerdict::kFreed) ++other_wins;
      ++other_done;
    }
    thread_exit();
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  int rounds = 0;
  int wins = 0;
  while (std::chrono::steady_clock::now() < end) {
    char* const p = allocate(48);
    ++rounds;
    object = p;
    for (int i = 0; i < rounds % 32; ++i) __builtin_ia32_pause();  // meets the other at every offset
    if (release(p) == FreeVerdict::kFreed) ++wins;
    while (other_done < rounds) std::this_thread::yield();
  }
  stop = true;
  other.join();
  EXPECT_EQ(wins + other_wins, rounds);
}

TEST_F(HeapTest, AnInteriorOrForeignPointerIsInvalid) {
  char* const p = allocate(100);
  char on_stack[64];
  static char global[64];
  for (char* const wrong : {p + 1, p + 8, p + 16, p + 96, p - 16, p + 112, p + 128, on_stack + 16, global + 16,
                            reinterpret_cast<char*>(16), reinterpret_cast<char*>(~std::uintptr_t{15}),
                            reinterpret_cast<char*>(0x8fff7000), reinterpret_cast<char*>(std::uintptr_t{1} << 63)}) {
    EXPECT_EQ(release(wrong), FreeVerdict::kInvalid) << static_cast<void*>(wrong);
  }
  EXPECT_EQ(release(p), FreeVerdict::kFreed);
  char* const large = allocate(1u << 20);
  EXPECT_EQ(release(large + 4096), FreeVerdict::kInvalid);
  EXPECT_EQ(release(large - 16), FreeVerdict::kInvalid);
  EXPECT_EQ(release(large), FreeVerdict::kFreed);
  EXPECT_EQ(release(large), FreeVerdict::kDoubleFree);
}

TEST_F(HeapTest, APointerIntoTheGapOfAnAlignedObjectIsInvalid) {
  char* const p = allocate(100, 512);
  EXPECT_EQ(release(p - 32), FreeVerdict::kInvalid);
  EXPECT_EQ(release(p), FreeVerdict::kFreed);
}

TEST_F(HeapTest, AMismatchIsToldAndTheObjectFreed) {
  char* const p = allocate(10, 16, AllocatorName::kNew);
  EXPECT_EQ(heap::free(p, AllocatorName::kMalloc, kNoStack), FreeVerdict::kMismatched);
  EXPECT_EQ(heap::free(p, AllocatorName::kMalloc, kNoStack), FreeVerdict::kDoubleFree);
  char* const q = allocate(10, 16, AllocatorName::kNew);
  EXPECT_EQ(heap::free(q, AllocatorName::kNew, kNoStack), FreeVerdict::kFreed);
}

TEST_F(HeapTest, AnOverwrittenHeaderIsCorruptWhicheverByteItWas) {
  for (int offset = 1; offset <= 16; ++offset) {
    char* const p = allocate(64);
    // The state's two bits are not part of the check; any other bit is.
    p[-offset] ^= 0x10;
    EXPECT_EQ(release(p), FreeVerdict::kCorruptHeader) << offset;
    p[-offset] ^= 0x10;
    EXPECT_EQ(release(p), FreeVerdict::kFreed) << offset;
  }
}

TEST_F(HeapTest, ACopiedHeaderIsNoHeader) {
  char* const p = allocate(64);
  char* const q = allocate(64);
  char saved[16];
  std::memcpy(saved, q - 16, 16);
  std::memcpy(q - 16, p - 16, 16);
  EXPECT_EQ(release(q), FreeVerdict::kCorruptHeader);
  std::memcpy(q - 16, saved, 16);
  release(q);
  release(p);
}

TEST_F(HeapTest, AFreedBlockIsNotReusedWhileTheQuarantineHoldsIt) {
  drain_quarantine();
  std::set<void*> held;
  std::size_t bytes = 0;
  // Whole blocks count, so this stays below the limit.
  while (bytes < kTestQuarantine / 2) {
    char* const p = allocate(200);
    ASSERT_TRUE(held.insert(p).second) << "handed out while held";
    release(p);
    bytes += 16 + 200 + 64 + 64;
  }
  for (void* const p : held) EXPECT_EQ(release(p), FreeVerdict::kDoubleFree);
}

TEST_F(HeapTest, TheQuarantineCountsWholeBlocksAndKeepsItsLimit) {
  drain_quarantine();
  EXPECT_EQ(stats().quarantined_bytes, 0u);
  for (int i = 0; i < 64; ++i) release(allocate(1));
  EXPECT_EQ(stats().quarantined_bytes, 64u * 48) << "header, 1 byte, redzone in mimalloc's class of 48";
  for (int i = 0; i < 100000; ++i) release(allocate(1 + i % 2000));
  EXPECT_LE(stats().quarantined_bytes, kTestQuarantine);
  EXPECT_GT(stats().quarantined_bytes, kTestQuarantine / 2);
}

TEST_F(HeapTest, AThreadKeepsASixtyFourthOfTheLimitToItselfAtMost) {
  drain_quarantine();
  std::size_t freed = 0;
  for (int i = 0; i < 40; ++i) {
    char* const p = allocate(3000);
    release(p);
    freed += 3000;
    EXPECT_GE(stats().quarantined_bytes + kTestQuarantine / 64 + 4096, freed);
  }
}

TEST_F(HeapTest, AFarAlignedObjectLeavesNoTagBehind) {
  // Its header lies in a unit that the region allocator keeps untouched (memory ruling 4).
  char* const p = allocate(1u << 20, 4u << 20);
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(shadow_at(p - 16), static_cast<std::uint8_t>(ShadowTag::kHeapLeftRedzone));
  release(p);
  EXPECT_NE(shadow_at(p - 16), static_cast<std::uint8_t>(ShadowTag::kHeapLeftRedzone));
}

TEST_F(HeapTest, AThreadThatEndsLeavesNothingInItsBatch) {
  drain_quarantine();
  std::thread([] {
    char* const kept = allocate(100);
    release(allocate(100));
    EXPECT_EQ(stats().quarantined_bytes, 0u);
    thread_exit();
    EXPECT_EQ(stats().quarantined_bytes, 192u);
    // What the thread frees after its last flush is not lost either, and what it still allocates is no mimalloc block.
    release(kept);
    EXPECT_EQ(stats().quarantined_bytes, 2u * 192);
    char* const late = allocate(100);
    BlockInfo info;
    EXPECT_TRUE(describe(AppAddr(late), info) && info.is_large);
    EXPECT_EQ(release(late), FreeVerdict::kFreed);
  }).join();
  EXPECT_EQ(stats().lost_blocks, 0u);
}

// Memory ruling 5.
TEST_F(HeapTest, AnOverflowOutOfANewBlockMeetsPoisonAlsoInTheNextUnit) {
  // Untouched shadow reads 0 throughout; a unit that was filled holds at least something else somewhere.
  const auto is_filled = [](std::uintptr_t unit) {
    for (std::uintptr_t a = unit; a < unit + shadow::kUnitSize; a += 8) {
      if (shadow_at(reinterpret_cast<void*>(a)) != 0) return true;
    }
    return false;
  };
  for (int growths = 0; growths < 60;) {
    const std::uint64_t before = stats().taken_units;
    const auto p = reinterpret_cast<std::uintptr_t>(allocate(9000));
    if (stats().taken_units == before) continue;
    ++growths;
    const std::uintptr_t unit = round_down(p + 9000 + 255, shadow::kUnitSize);
    ASSERT_TRUE(is_filled(unit));
    const std::uintptr_t next = unit + shadow::kUnitSize;
    if (next % (32u << 20) != 0) {
      ASSERT_TRUE(is_filled(next)) << growths;
    }
  }
}

TEST_F(HeapTest, MemoryThatCannotBeHadIsNullAndEnomemAndNothingElse) {
  errno = 0;
  EXPECT_EQ(allocate(PTRDIFF_MAX), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(allocate(~std::size_t{0}), nullptr);
  EXPECT_EQ(allocate(~std::size_t{0} - 15), nullptr);
  EXPECT_EQ(allocate(16, std::size_t{1} << 62), nullptr);
  EXPECT_EQ(allocate(~std::size_t{0}, std::size_t{1} << 46), nullptr);
  errno = 0;
  EXPECT_EQ(allocate(kTestSpan), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

// Memory ruling 18: no block ever comes from outside the span, also when one arena after the other is full.
TEST_F(HeapTest, AFullArenaIsFollowedByAnotherUntilTheSpanIsUsedUp) {
  const std::uint64_t before = stats().arenas;
  std::vector<char*> all;
  errno = 0;
  while (char* const p = allocate(200000)) {
    ASSERT_TRUE(owns(AppAddr(p)));
    all.push_back(p);
  }
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_GT(stats().arenas, before);
  EXPECT_GT(all.size() * 200000, kTestSpan / 2);
  for (char* const p : all) EXPECT_EQ(release(p), FreeVerdict::kFreed);
  drain_quarantine();
  char* const again = allocate(200000);
  EXPECT_NE(again, nullptr);
  release(again);
}

TEST_F(HeapTest, ContentsMoveWholeBetweenObjectsOfAllSizesAndBothStayWhatTheyWere) {
  // Up to 1 MiB bytes are copied, above pages move; also from one kind to the other, and to less.
  const std::size_t sizes[] = {1000,   300000, (1u << 20) - 16, (1u << 20) + 1, 3000000, 3000000 + kPageSize - 1,
                               9000000};
  for (const std::size_t from_bytes : sizes) {
    for (const std::size_t to_bytes : sizes) {
      char* const from = allocate(from_bytes);
      char* const to = allocate(to_bytes);
      const std::size_t bytes = std::min(from_bytes, to_bytes);
      const auto value = [](std::size_t i) { return static_cast<char>(i * 7 + i / 4096); };
      for (std::size_t i = 0; i < bytes; ++i) from[i] = value(i);
      move_contents(to, from, bytes);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < bytes; ++i) wrong += to[i] != value(i);
      EXPECT_EQ(wrong, 0u) << from_bytes << " to " << to_bytes;
      to[to_bytes - 1] = 1;
      EXPECT_EQ(requested_bytes(from), from_bytes);
      EXPECT_EQ(requested_bytes(to), to_bytes);
      EXPECT_FALSE(accessible(to + to_bytes, 1));
      EXPECT_EQ(release(from), FreeVerdict::kFreed);
      EXPECT_FALSE(accessible(from, 1));
      EXPECT_EQ(release(to), FreeVerdict::kFreed);
    }
  }
}

TEST_F(HeapTest, PagesThatManyBytesMoveToAreHadByOneCall) {
  for (const std::size_t bytes : {60000u, 200000u, 1000000u}) {
    char* const from = allocate(bytes);
    char* const to = allocate(bytes);
    const std::uint64_t before = os::memory_calls_made(os::MemoryCall::kAdvise);
    move_contents(to, from, bytes);
    EXPECT_EQ(os::memory_calls_made(os::MemoryCall::kAdvise) - before, bytes > 16 * kPageSize ? 1u : 0u) << bytes;
    release(from);
    release(to);
  }
}

TEST_F(HeapTest, ErrnoIsKeptBySuccess) {
  errno = 77;
  for (int i = 0; i < 2000; ++i) release(allocate(1 + 97 * i % 300000));
  drain_quarantine();
  EXPECT_EQ(errno, 77);
}

// Against a model: every live object keeps its bytes and its size, whatever happens around it, on several
// threads that hand objects to each other.
TEST_F(HeapTest, RandomProgramsKeepEveryObjectIntact) {
  struct Object {
    char* p;
    std::size_t bytes;
    char fill;
  };

  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 3; ++seed) {
    threads.emplace_back([seed] {
      std::mt19937 random(seed);
      std::vector<Object> live;
      for (int step = 0; step < 20000; ++step) {
        if (random() % 2 == 0 || live.empty()) {
          const std::size_t bytes = random() % (1u << random() % 19);
          const std::size_t alignment = std::size_t{16} << (random() % 4 == 0 ? random() % 9 : 0);
          Object object{allocate(bytes, alignment), bytes, static_cast<char>(random())};
          ASSERT_NE(object.p, nullptr);
          std::memset(object.p, object.fill, bytes);
          live.push_back(object);
        } else {
          std::swap(live[random() % live.size()], live.back());
          const Object object = live.back();
          live.pop_back();
          ASSERT_EQ(requested_bytes(object.p), object.bytes);
          ASSERT_TRUE(accessible(object.p, object.bytes));
          for (std::size_t i = 0; i < object.bytes; ++i) ASSERT_EQ(object.p[i], object.fill) << "seed " << seed;
          ASSERT_EQ(release(object.p), FreeVerdict::kFreed) << "seed " << seed;
        }
      }
      for (const Object& object : live) EXPECT_EQ(release(object.p), FreeVerdict::kFreed);
      thread_exit();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace penumbra::heap
