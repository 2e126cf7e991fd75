// The thread that purges when worker=1, so that the program's threads do not (process ruling 17).
//
//             ensure                         nothing due for kIdleNs, or stand_down()
//     none ------------> starting --> serving ---------------------------------------> none
//                            |          | ^
//      cannot: none, and the | asleep_=1| | ring(): asleep_=0, wake
//      program's threads go on          v |
//                                    asleep
//
// It exists only while there is something to do, and for a moment behind that: most programs never meet it, and one
// that ends all its threads but this does not hang.
//
// W1  a request is served: whoever asks makes it visible (request_seq_, the list of signal frees), then rings; the worker
//     says that it sleeps, then looks once more. Both are sequentially consistent.
// W2  is_serving() is true only in the process that the worker belongs to: a child by any kind of fork has none, until
//     its own threads start one. A vfork child purges for itself.
// W3  it holds no lock of the program's, no node's lock across a kernel call, and the purge mutex for one step at a time.
// W4  a sealed process has none, and when stand_down() has succeeded the kernel counts no thread of ours.
//
// zone: nomalloc
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/base/own_thread.h"

namespace penumbra::region {

class Worker {
 public:
  // How long a worker without work stays: long enough for a busy program's next purge.
  static constexpr std::uint64_t kIdleNs = 1'000'000'000;

  // What it does, called by its thread without any lock.
  struct Job {
    void* owner = nullptr;
    bool (*step)(void* owner) = nullptr;    // false when nothing was due
    bool (*is_due)(void* owner) = nullptr;  // is there a request that no step has seen?
    void (*rest)(void* owner) = nullptr;    // it will not step for a while: its helpers may go
    std::uint64_t idle_ns = kIdleNs;
    void (*before_sleep)() = nullptr;  // for tests: after its last step, before it says that it sleeps
  };

  // A step takes a fraction of a millisecond, on a busy machine some.
  static constexpr std::uint64_t kStandDownNs = 1'000'000'000;
  // How long after a refusal no other start is tried.
  static constexpr std::uint64_t kRefusedNs = 1'000'000'000;

  // Once, before any other call.
  void init(const Job& job);
  // Ends it and gives its memory back; nobody rings any more.
  void destroy();
  bool is_wanted() const { return job_.step != nullptr; }

  // There is one in this process, or about to be, which will look again once it is rung.
  bool is_serving() const;
  // Starts one if there is none; false where that is impossible now. Not in signal handlers.
  bool ensure();
  // Signal-safe.
  void ring();

  // Ends it and lets none begin until resume(). Calls may nest and come from several threads. False when it has not gone
  // within `ns`: its step waits for what a thread holds that waits for us, as a handler may that interrupted a purge. It
  // goes then as soon as it can.
  bool stand_down(std::uint64_t ns = kStandDownNs);
  void resume() { held_.fetch_sub(1, std::memory_order_seq_cst); }

  void fork_child();

 private:
  enum class State : std::uint32_t { kNone, kStarting, kServing };

  static void run(void* self);
  bool sleep();
  bool leave();
  bool must_stop() const { return held_.load(std::memory_order_seq_cst) != 0; }

  Job job_;
  std::atomic<State> state_{State::kNone};
  std::atomic<int> pid_{0};  // of the process that all this is of; a child copies it, and differs
  std::atomic<std::uint32_t> asleep_{0};
  std::atomic<std::uint32_t> held_{0};
  std::atomic<std::uint64_t> not_before_{0};  // monotonic ns
  OwnThread thread_;
};

}  // namespace penumbra::region
