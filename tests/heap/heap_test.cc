// The heap's contract, on real mimalloc blocks: shadow around objects, verdicts of frees, quarantine, arenas.
#include "allocator/heap/heap.h"

#include <errno.h>

#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "allocator/heap/layout.h"
#include "tests/heap/fake_regions.h"
#include "tests/heap/heap_fixture.h"

namespace penumbra::heap {
namespace {

using shadow::ShadowTag;

// Sizes around every step of the redzone table, granules, mimalloc's classes and the largest block.
std::vector<std::size_t> interesting_sizes() {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 0; bytes <= 160; ++bytes) sizes.push_back(bytes);
  for (const std::size_t step : {448u, 1024u, 3968u, 4096u, 16128u, 32256u, 64512u, 131072u, 262144u, 300000u, 5000000u}) {
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

TEST_F(HeapTest, OfManyThreadsThatFreeOneObjectExactlyOneWins) {
  for (int round = 0; round < 200; ++round) {
    char* const p = allocate(48);
    std::atomic<int> wins{0};
    std::atomic<int> losses{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] { (release(p) == FreeVerdict::kFreed ? wins : losses).fetch_add(1); });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(wins, 1);
    ASSERT_EQ(losses, 2);
  }
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

TEST_F(HeapTest, AThreadThatEndsLeavesNothingInItsBatch) {
  drain_quarantine();
  std::thread([] {
    release(allocate(100));
    EXPECT_EQ(stats().quarantined_bytes, 0u);
    thread_exit();
    EXPECT_EQ(stats().quarantined_bytes, 192u);
    // What the thread frees after its last flush is not lost either.
    release(allocate(100));
    EXPECT_EQ(stats().quarantined_bytes, 2u * 192);
  }).join();
  EXPECT_EQ(stats().lost_blocks, 0u);
}

// Memory ruling 5.
TEST_F(HeapTest, BehindANewBlockItsUnitAndTheNextOneAreNeverAllocated) {
  // A block that makes units filled is the first in its last unit; what lies behind it has seen no other yet, or is
  // a block, a redzone, a freed object. Untouched shadow (0) would be an accessible byte of nobody.
  for (int growths = 0; growths < 40;) {
    const std::uint64_t before = stats().filled_units;
    char* const p = allocate(9000);
    if (stats().filled_units == before) continue;
    ++growths;
    const auto end = reinterpret_cast<std::uintptr_t>(p) + 9000;
    const std::uintptr_t next_unit = round_down(end + 256, shadow::kUnitSize) + shadow::kUnitSize;
    for (std::uintptr_t a = next_unit; a < next_unit + shadow::kUnitSize; a += 8) {
      ASSERT_EQ(shadow_at(reinterpret_cast<void*>(a)), static_cast<std::uint8_t>(ShadowTag::kHeapNeverAllocated));
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
  region::set_fake_failure(true);
  errno = 0;
  EXPECT_EQ(allocate(1u << 20), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  // Arena blocks: until the arenas are full, then the same.
  std::vector<char*> all;
  errno = 0;
  while (char* const p = allocate(200000)) all.push_back(p);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_GT(all.size(), 100u);
  region::set_fake_failure(false);
  // A full arena is followed by another one, never by memory of the system's.
  const std::uint64_t before = stats().arenas;
  char* const again = allocate(200000);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(stats().arenas, before + 1);
  EXPECT_TRUE(owns(AppAddr(again)));
  release(again);
  for (char* const p : all) EXPECT_EQ(release(p), FreeVerdict::kFreed);
  drain_quarantine();
}

TEST_F(HeapTest, ErrnoIsKeptBySuccess) {
  errno = 77;
  for (int i = 0; i < 2000; ++i) release(allocate(1 + 97 * i % 300000));
  drain_quarantine();
  EXPECT_EQ(errno, 77);
}

// Against a model: every live object keeps its bytes and its size, whatever happens around it, on several threads that
// hand objects to each other.
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
