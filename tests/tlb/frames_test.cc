// Frames go round: taken, retired, and free only behind a flush.
#include "shadow/frames.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace penumbra::shadow {
namespace {

TEST(FramePool, RetiredFramesAreNobodysUntilTheFlush) {
  FramePool pool;
  ASSERT_TRUE(pool.init(4).ok());
  std::vector<std::uint8_t*> frames;
  for (int i = 0; i < 4; ++i) frames.push_back(pool.take());
  EXPECT_EQ(std::set(frames.begin(), frames.end()).size(), 4u);
  EXPECT_EQ(pool.take(), nullptr);
  pool.retire(frames[1]);
  pool.retire(frames[2]);
  EXPECT_EQ(pool.take(), nullptr);
  EXPECT_EQ(pool.taken(), 4u);
  EXPECT_EQ(pool.reuse_retired(), 2u);
  EXPECT_EQ(pool.taken(), 2u);
  const std::set<std::uint8_t*> again{pool.take(), pool.take()};
  EXPECT_EQ(again, (std::set<std::uint8_t*>{frames[1], frames[2]}));
  EXPECT_EQ(pool.take(), nullptr);
  pool.give_back(frames[0]);
  EXPECT_EQ(pool.take(), frames[0]);
  EXPECT_EQ(pool.reuse_retired(), 0u);
  pool.destroy();
}

// F2: a reader with an old translation reads; it does not fault.
TEST(FramePool, FramesStayMapped) {
  FramePool pool;
  ASSERT_TRUE(pool.init(2).ok());
  std::uint8_t* const frame = pool.take();
  frame[7] = 42;
  pool.retire(frame);
  EXPECT_EQ(frame[7], 42);
  pool.reuse_retired();
  EXPECT_EQ(frame[7], 42);
  pool.destroy();
}

TEST(FramePool, NoFrameHasTwoOwners) {
  FramePool pool;
  ASSERT_TRUE(pool.init(64).ok());
  std::atomic<int> owned[64]{};
  std::atomic<int> wrong{0};
  std::uint8_t* const base = pool.take();
  pool.give_back(base);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      std::vector<std::uint8_t*> mine;
      const auto give_all_back = [&] {
        for (std::uint8_t* const frame : mine) {
          owned[(frame - base) / kPageSize].fetch_sub(1);
          pool.give_back(frame);
        }
        mine.clear();
      };
      for (int i = 0; i < 20000; ++i) {
        if (mine.size() == 16) give_all_back();
        std::uint8_t* const frame = pool.take();
        if (frame == nullptr) {
          ++wrong;
          continue;
        }
        if (owned[(frame - base) / kPageSize].fetch_add(1) != 0) ++wrong;
        mine.push_back(frame);
      }
      give_all_back();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(pool.taken(), 0u);
  pool.destroy();
}

}  // namespace
}  // namespace penumbra::shadow
