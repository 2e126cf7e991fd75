// One report at a time, and never a deadlock for it.
//
// The word is that of a futex mutex (locks.h), but waiting is bounded, and the holder is known: a fault inside a
// report must be told from one in another thread, and a holder that no longer exists (its process forked, or it was
// killed) must not keep all others waiting.
//
// I1  owner_tid_ is non-zero only between a successful acquire() and its release().
//
// zone: signal-safe
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/report/task.h"

namespace penumbra::report {

enum class Acquired : std::uint8_t { kYes, kNested, kTimedOut };

class ReportLock {
 public:
  constexpr ReportLock() = default;

  // kNested: the calling thread holds it already. kTimedOut: about `ns` have passed and the holder is still at it.
  Acquired acquire(Task me, std::uint64_t ns);
  void release();

  bool is_held_by(Task me) const {
    return me.tid != 0 && owner_tid_.load(std::memory_order_relaxed) == me.tid &&
           owner_pid_.load(std::memory_order_relaxed) == me.pid;
  }
  void reset_after_fork();

 private:
  bool holder_is_gone(Task me) const;

  std::atomic<std::uint32_t> word_{0};  // 0 free, 1 taken, 2 taken and somebody may sleep
  std::atomic<int> owner_tid_{0};
  std::atomic<int> owner_pid_{0};
};

}  // namespace penumbra::report
