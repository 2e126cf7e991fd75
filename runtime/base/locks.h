// A futex mutex that needs no libc, may be taken inside malloc, and can be tried from a report.
//
// Word: 0 free, 1 taken, 2 taken and somebody may sleep (Drepper, "Futexes are tricky", mutex 2).
// I1  only the holder leaves 1 or 2 behind for 0; a sleeper always leaves 2 before it sleeps.
// A report may only use try_lock(): the interrupted code may be the holder (KASAN's lesson, facts kasan 1.6 #16).
//
// zone: nomalloc
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/base/os_linux.h"

namespace penumbra {

class Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  bool try_lock() {
    std::uint32_t free = 0;
    return word_.compare_exchange_strong(free, 1, std::memory_order_acquire, std::memory_order_relaxed);
  }

  void lock() {
    if (try_lock()) return;
    for (int spin = 0; spin < 64; ++spin) {
      __builtin_ia32_pause();
      if (word_.load(std::memory_order_relaxed) == 0 && try_lock()) return;
    }
    while (word_.exchange(2, std::memory_order_acquire) != 0) os::futex_wait(&word_, 2).ignore();
  }

  void unlock() {
    if (word_.exchange(0, std::memory_order_release) == 2) os::futex_wake(&word_, 1).ignore();
  }

  bool is_locked() const { return word_.load(std::memory_order_relaxed) != 0; }
  // In a fork child whose only thread is the caller: nobody else can hold it any more.
  void reset_after_fork() { word_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint32_t> word_{0};
};

class LockGuard {
 public:
  explicit LockGuard(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~LockGuard() { mutex_.unlock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace penumbra
