// Buffers for a moment: there while reserved, one user each, and no moment in which a set vanishes under a buffer.
#include "runtime/base/scratch_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace penumbra {
namespace {

int refuse_all(os::MemoryCall call) {
  return call == os::MemoryCall::kMap ? ENOMEM : 0;
}

TEST(ScratchPool, EachBufferHasOneUserAndTheNextGetsAnother) {
  ScratchPool pool(5000, 3);
  ASSERT_TRUE(pool.reserve());
  EXPECT_EQ(pool.buffer_bytes(), 8192u);
  std::set<void*> buffers;
  for (int i = 0; i < 3; ++i) {
    void* const buffer = pool.acquire();
    ASSERT_NE(buffer, nullptr);
    std::memset(buffer, i, pool.buffer_bytes());
    buffers.insert(buffer);
  }
  EXPECT_EQ(buffers.size(), 3u);
  EXPECT_EQ(pool.acquire(), nullptr);
  pool.release(*buffers.begin());
  EXPECT_EQ(pool.acquire(), *buffers.begin());
  pool.unreserve();
}

TEST(ScratchPool, TheSetIsMappedExactlyWhileReserved) {
  ScratchPool pool(kPageSize);
  EXPECT_FALSE(pool.is_mapped());
  const std::uint64_t maps = os::memory_calls_made(os::MemoryCall::kMap);
  ASSERT_TRUE(pool.reserve());
  ASSERT_TRUE(pool.reserve());
  EXPECT_EQ(os::memory_calls_made(os::MemoryCall::kMap), maps + 1);
  EXPECT_EQ(pool.buffers(), os::possible_cpus() + 1);
  pool.unreserve();
  EXPECT_TRUE(pool.is_mapped());
  pool.unreserve();
  EXPECT_FALSE(pool.is_mapped());
}

TEST(ScratchPool, WithoutMemoryNothingIsReserved) {
  ScratchPool pool(kPageSize);
  os::set_failure_injector_test_only(refuse_all);
  EXPECT_FALSE(pool.reserve());
  os::set_failure_injector_test_only(nullptr);
  EXPECT_FALSE(pool.is_mapped());
  EXPECT_TRUE(pool.reserve());
  pool.unreserve();
}

// S1, S2: threads reserve, use and give back in any order; a buffer is written whole while it is held.
TEST(ScratchPool, NoSetVanishesUnderABuffer) {
  ScratchPool pool(kPageSize, 4);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 1; t <= 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 3000; ++i) {
        if (!pool.reserve()) {
          ++wrong;
          continue;
        }
        if (auto* const buffer = static_cast<char*>(pool.acquire()); buffer != nullptr) {
          std::memset(buffer, t, 256);
          for (int at = 0; at < 256; ++at) wrong += buffer[at] != t;
          pool.release(buffer);
        } else {
          ++wrong;  // four buffers, three users
        }
        pool.unreserve();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_FALSE(pool.is_mapped());
}

}  // namespace
}  // namespace penumbra
