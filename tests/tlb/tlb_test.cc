// Memory ruling 16 on the real structures; tests/tlb/model has all interleavings of a model of them.
#include "shadow/tlb.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "shadow/frames.h"
#include "tests/purge/support.h"

namespace penumbra::shadow {
namespace {

TEST(Ruling16, TranslationIsRememberedUntilTheNextFlush) {
  Tlb tlb;
  SoftTlb mine;
  std::uint8_t frames[2][1] = {{10}, {20}};
  int walks = 0;
  int at = 0;
  const auto read = [&] {
    return mine.read(
        tlb, 5, [&](std::size_t) { return ++walks, frames[at]; }, [](const std::uint8_t* frame) { return *frame; });
  };
  EXPECT_EQ(read(), 10);
  EXPECT_EQ(read(), 10);
  EXPECT_EQ(walks, 1);
  at = 1;
  tlb.flush(1, 1);
  EXPECT_EQ(read(), 20);
  EXPECT_EQ(walks, 2);
}

// The purge comes between translating and reading: the bytes read are another page's, and the reader must notice.
TEST(Ruling16, ReaderThatWasOvertakenByAFlushReadsAgain) {
  Tlb tlb;
  SoftTlb mine;
  FramePool pool;
  ASSERT_TRUE(pool.init(1).ok());
  std::uint8_t* table[2] = {pool.take(), nullptr};
  *table[0] = 7;
  int reads = 0;
  const int seen = mine.read(
      tlb, 0, [&](std::size_t page) { return table[page]; },
      [&](const std::uint8_t* frame) -> int {
        if (++reads == 1) {
          std::uint8_t* const frame_of_0 = table[0];
          table[0] = nullptr;  // clear
          pool.retire(frame_of_0);
          EXPECT_EQ(pool.take(), nullptr);
          tlb.flush(1, 1);       // flush
          pool.reuse_retired();  // free
          table[1] = pool.take();
          EXPECT_EQ(table[1], frame_of_0);
          *table[1] = 99;
        }
        return frame == nullptr ? -1 : *frame;
      });
  EXPECT_EQ(reads, 2);
  EXPECT_EQ(seen, -1);
  pool.destroy();
}

TEST(Ruling16, PagesOfOneSlotDoNotMeetEachOthersFrames) {
  Tlb tlb;
  SoftTlb mine;
  std::uint8_t frames[3][1] = {{1}, {2}, {3}};
  for (int round = 0; round < 3; ++round) {
    for (std::size_t page = 0; page < 3; ++page) {
      const int seen = mine.read(
          tlb, page * SoftTlb::kEntries, [&](std::size_t) { return frames[page]; },
          [](const std::uint8_t* frame) -> int { return *frame; });
      EXPECT_EQ(seen, static_cast<int>(page) + 1);
    }
  }
}

// Threads and the kernel's scheduler: each page's frame is filled with its number; readers never see another's.
TEST(Ruling16, ReadersNeverSeeAnotherPagesBytesWhileFramesGoRound) {
  constexpr std::size_t kPages = 8;
  Tlb tlb;
  FramePool pool;
  ASSERT_TRUE(pool.init(kPages).ok());
  std::atomic<std::uint8_t*> table[kPages]{};
  std::atomic<bool> stop{false};
  std::atomic<int> stale{0};
  const auto byte = [](const std::uint8_t* frame, std::size_t i) {
    return std::atomic_ref(const_cast<std::uint8_t&>(frame[i])).load(std::memory_order_relaxed);
  };
  std::thread reader([&] {
    SoftTlb mine;
    for (std::size_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
      const std::size_t page = i % kPages;
      const auto is_own = [&](const std::uint8_t* frame) {
        if (frame == nullptr) return true;
        for (std::size_t at = 0; at < kPageSize; at += 512) {
          if (byte(frame, at) != page) return false;
        }
        return true;
      };
      if (!mine.read(
              tlb, page, [&](std::size_t p) { return table[p].load(std::memory_order_acquire); }, is_own)) {
        ++stale;
      }
    }
  });
  for (int i = 0; i < 20000; ++i) {
    const std::size_t page = static_cast<std::size_t>(i * 5) % kPages;
    if (std::uint8_t* const frame = table[page].exchange(nullptr); frame != nullptr) {
      pool.retire(frame);
      tlb.flush(1, 1);
      pool.reuse_retired();
    }
    const std::size_t other = static_cast<std::size_t>(i * 3 + 1) % kPages;
    if (table[other].load() != nullptr) continue;
    std::uint8_t* const frame = pool.take();
    ASSERT_NE(frame, nullptr);
    for (std::size_t at = 0; at < kPageSize; at += 512) {
      std::atomic_ref(frame[at]).store(static_cast<std::uint8_t>(other), std::memory_order_relaxed);
    }
    table[other].store(frame, std::memory_order_release);
  }
  stop.store(true);
  reader.join();
  EXPECT_EQ(stale.load(), 0);
  pool.destroy();
}

TEST(Tlb, FlushCostsWhatTheModelledMachineWouldTake) {
  Tlb tlb;
  tlb.set_cost({.base_ns = 1000, .per_cpu_ns = 29'000, .cpus = 256});
  const std::uint64_t begun = os::thread_cpu_ns();
  tlb.flush(3, 40);
  const std::uint64_t spent = os::thread_cpu_ns() - begun;
  EXPECT_GE(spent, 7'425'000u);
  EXPECT_LT(spent, 30'000'000u);
  EXPECT_EQ(tlb.counts().flushes, 1u);
  EXPECT_EQ(tlb.counts().ranges, 3u);
  EXPECT_EQ(tlb.counts().pages, 40u);
}

// The lesson of facts kasan 1.6 #12: 2805 areas are flushed by the chunk, not one by one.
TEST(Tlb, PurgeFlushesOnceAChunkAndPaysTheModelledCostThatOften) {
  region::Config config = region::LazyRegions::small();
  config.nodes = 1;
  config.flush_cost = {.base_ns = 500'000, .per_cpu_ns = 0, .cpus = 1};
  region::LazyRegions regions(config);
  region::free_all(regions, region::allocate_many(regions, 640));
  const std::uint64_t flushes = regions->stats().flushes;
  const std::uint64_t begun = os::thread_cpu_ns();
  regions->purge_all();
  const std::uint64_t spent = os::thread_cpu_ns() - begun;
  EXPECT_EQ(regions->stats().flushes - flushes, 640u / 32u);  // closed ones count twice in a chunk of 64
  EXPECT_GE(spent, 640u / 32u * 500'000u);
}

}  // namespace
}  // namespace penumbra::shadow
