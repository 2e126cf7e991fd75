// The futex mutex: mutual exclusion under contention, try_lock's honesty, and no lost wake-up.
#include "runtime/base/locks.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace penumbra {
namespace {

TEST(Mutex, ExcludesAndLosesNoWakeUp) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 20'000;
  Mutex mutex;
  long counter = 0;  // plain: a lost exclusion shows as a wrong sum, a lost wake-up as a test that never ends
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        LockGuard guard(mutex);
        ++counter;
        if (i % 64 == 0) std::this_thread::yield();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(counter, long{kThreads} * kRounds);
  EXPECT_FALSE(mutex.is_locked());
}

TEST(Mutex, TryLockFailsWhileHeld) {
  Mutex mutex;
  ASSERT_TRUE(mutex.try_lock());
  std::thread([&] { EXPECT_FALSE(mutex.try_lock()); }).join();
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

}  // namespace
}  // namespace penumbra
