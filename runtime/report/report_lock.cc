#include "runtime/report/report_lock.h"

#include "runtime/base/os_process.h"

namespace penumbra::report {
namespace {

// A sleeper looks up this often whether the holder still exists.
constexpr std::uint64_t kLookNs = 50'000'000;

}  // namespace

bool ReportLock::holder_is_gone(Task me) const {
  const int pid = owner_pid_.load(std::memory_order_relaxed);
  const int tid = owner_tid_.load(std::memory_order_relaxed);
  return tid != 0 && pid == me.pid && !os::is_sealed() && !os::thread_exists(pid, tid);
}

Acquired ReportLock::acquire(Task me, std::uint64_t ns) {
  if (is_held_by(me)) return Acquired::kNested;
  std::uint32_t seen = 0;
  if (!word_.compare_exchange_strong(seen, 1, std::memory_order_acquire)) {
    // Time is counted in looks, not read from a clock: a sealed process may not ask for it.
    std::uint64_t looks_left = ns / kLookNs + 1;
    while (word_.exchange(2, std::memory_order_acquire) != 0) {
      // A holder of another process: this one was forked without our hooks while a report was under way.
      const bool foreign = owner_pid_.load(std::memory_order_relaxed) != me.pid;
      if (holder_is_gone(me) || (looks_left == 0 && foreign)) break;
      if (looks_left == 0) return Acquired::kTimedOut;
      --looks_left;
      os::futex_wait_for(&word_, 2, kLookNs).ignore();
    }
  }
  owner_pid_.store(me.pid, std::memory_order_relaxed);
  owner_tid_.store(me.tid, std::memory_order_relaxed);
  return Acquired::kYes;
}

void ReportLock::release() {
  owner_tid_.store(0, std::memory_order_relaxed);
  if (word_.exchange(0, std::memory_order_release) == 2) os::futex_wake(&word_, 1).ignore();
}

void ReportLock::reset_after_fork() {
  owner_tid_.store(0, std::memory_order_relaxed);
  word_.store(0, std::memory_order_relaxed);
}

}  // namespace penumbra::report
