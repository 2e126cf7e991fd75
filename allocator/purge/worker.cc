#include "allocator/purge/worker.h"

#include <errno.h>

#include "runtime/base/os_linux.h"
#include "runtime/base/os_process.h"

namespace penumbra::region {

void Worker::init(const Job& job) {
  OwnThread::learn_thread_locals();
  pid_.store(os::getpid(), std::memory_order_relaxed);
  job_ = job;
}

void Worker::destroy() {
  if (!is_wanted()) return;
  while (!stand_down(kStandDownNs)) resume();
  thread_.destroy();
}

bool Worker::is_serving() const {
  return state_.load(std::memory_order_seq_cst) != State::kNone &&
         pid_.load(std::memory_order_relaxed) == os::getpid();
}

bool Worker::ensure() {
  if (is_serving()) return true;
  if (must_stop() || os::is_sealed()) return false;
  // A copy of somebody else's state, in a child whose hook has not run: it has no worker, and starts none.
  if (pid_.load(std::memory_order_relaxed) != os::getpid()) return false;
  State none = State::kNone;
  if (!state_.compare_exchange_strong(none, State::kStarting, std::memory_order_seq_cst)) return false;
  // From now on others take it for one that serves: it looks for work before it ever sleeps, and should it not come to
  // be, the caller is told. The one before may still be on its stack: then the next call tries again.
  if (!must_stop() && os::monotonic_ns() >= not_before_.load(std::memory_order_relaxed)) {
    const bool was_gone = thread_.is_gone();
    if (thread_.start("penumbra-purge", run, this)) return true;
    if (was_gone) not_before_.store(os::monotonic_ns() + kRefusedNs, std::memory_order_relaxed);
  }
  state_.store(State::kNone, std::memory_order_seq_cst);
  return false;
}

void Worker::ring() {
  if (asleep_.load(std::memory_order_seq_cst) == 0 || asleep_.exchange(0, std::memory_order_seq_cst) == 0) return;
  os::futex_wake(&asleep_, 1).ignore();
}

void Worker::run(void* self) {
  auto& worker = *static_cast<Worker*>(self);
  worker.state_.store(State::kServing, std::memory_order_seq_cst);
  for (;;) {
    while (!worker.must_stop() && worker.job_.step(worker.job_.owner)) {
    }
    worker.job_.rest(worker.job_.owner);
    if (worker.must_stop() || !worker.sleep()) {
      if (worker.leave()) return;
    }
  }
}

// False when the time was up and nobody had rung.
bool Worker::sleep() {
  if (job_.before_sleep != nullptr) job_.before_sleep();
  asleep_.store(1, std::memory_order_seq_cst);
  if (must_stop() || job_.is_due(job_.owner)) {
    asleep_.store(0, std::memory_order_seq_cst);
    return true;
  }
  const os::Result slept = os::futex_wait_for(&asleep_, 1, job_.idle_ns);
  return asleep_.exchange(0, std::memory_order_seq_cst) == 0 || slept.error() != ETIMEDOUT;
}

// Whoever asks from now on finds no worker; whoever asked before is seen here.
bool Worker::leave() {
  state_.store(State::kNone, std::memory_order_seq_cst);
  if (must_stop() || !job_.is_due(job_.owner)) return true;
  State none = State::kNone;
  return !state_.compare_exchange_strong(none, State::kServing, std::memory_order_seq_cst);
}

bool Worker::stand_down(std::uint64_t ns) {
  held_.fetch_add(1, std::memory_order_seq_cst);
  if (!is_wanted() || pid_.load(std::memory_order_relaxed) != os::getpid()) return true;
  // Somebody may be about to start one: it sees held_ at once, or we see the thread.
  while (state_.load(std::memory_order_seq_cst) == State::kStarting) os::yield();
  ring();
  return thread_.wait_gone(ns);
}

void Worker::fork_child() {
  state_.store(State::kNone, std::memory_order_relaxed);
  pid_.store(os::getpid(), std::memory_order_relaxed);
  asleep_.store(0, std::memory_order_relaxed);
  not_before_.store(0, std::memory_order_relaxed);
  held_.store(0, std::memory_order_relaxed);
  thread_.forget_after_fork();
}

}  // namespace penumbra::region
