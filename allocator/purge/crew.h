// Threads that help the worker for as long as much is waiting: one order at a time, joined before it is reported done.
//
// run() gives the same task, with numbers of their own, to the caller (0) and to helpers (1..), and returns when all have
// ended; a helper that cannot be had is the caller's share. Helpers stay for the next order until dismiss().
//
// E1  outside run() no helper touches anything but its own order. What it wrote is seen by who returns from run().
//
// All by one thread at a time: the worker, and in a fork child whoever forked.
//
// zone: nomalloc
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/base/own_thread.h"

namespace penumbra::region {

class Crew {
 public:
  static constexpr unsigned kMost = 8;  // the caller among them

  using Task = void (*)(void* owner, unsigned number);
  void run(unsigned count, Task task, void* owner);
  // Ends all helpers; the kernel counts them no more.
  void dismiss();
  void forget_after_fork();
  void destroy();

 private:
  enum Order : std::uint32_t { kRest, kWork, kEnd };

  struct Helper {
    OwnThread thread;
    std::atomic<std::uint32_t> order{kRest};
    Task task = nullptr;
    void* owner = nullptr;
    unsigned number = 0;
  };

  static void serve(void* helper);
  static bool give(Helper& helper, Task task, void* owner, unsigned number);

  Helper helpers_[kMost - 1];
};

}  // namespace penumbra::region
