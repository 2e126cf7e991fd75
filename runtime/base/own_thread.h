// A thread of our own, which the program's libc does not know (process ruling 17).
//
// It is made by clone(2). To libc a program with one thread still has one: pthread_exit of the main thread ends the
// process, __libc_single_threaded stays true, setuid waits for nobody. It shares memory, descriptors and working folder,
// and blocks every signal, so that the program's signals go to the program's threads. Its scheduling is the default
// policy's, whatever the thread has that starts it; CPUs and credentials are that thread's.
//
//     |guard| stack                        |  our thread-local variables ..|fs: a page of descriptor|
//
// T1  the function may use nothing of libc that keeps state: below the stack's end lies room for thread-local variables
//     at the offsets of all others, but only those of the module that this code is in have their initial values.
// T2  stack and variables are one mapping, made once and used again only when the thread before is gone for the kernel
//     too: it clears tid_ last.
//
// start(), destroy() and forget_after_fork() are called by one thread at a time. Tests under ThreadSanitizer, which
// must know every thread, link another implementation.
//
// zone: nomalloc
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"

namespace penumbra {

class OwnThread {
 public:
  static constexpr std::size_t kStackBytes = 64 << 10;

  constexpr OwnThread() = default;
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;

  // Learns where thread-local variables lie. Before the first start(), by a thread that may wait for the loader.
  static void learn_thread_locals();

  // False where there is none to be had: a limit, a seal, a new PID namespace, or the one before has not gone yet.
  // `name` has at most 15 characters.
  [[nodiscard]] bool start(const char* name, void (*function)(void*), void* argument);
  bool is_gone() const { return tid_.load(std::memory_order_acquire) == 0; }
  // Until it has ended and the kernel does not count it any more, which something else must bring about. False when that
  // took longer than `ns`. Any number of threads may wait.
  bool wait_gone(std::uint64_t ns);
  // In a fork child, which has only the thread that forked.
  void forget_after_fork() {
    tid_.store(0, std::memory_order_relaxed);
    last_tid_.store(0, std::memory_order_relaxed);
  }
  // Gives its memory back. It is gone.
  void destroy();

 private:
  static void enter(void* self);
  bool map_memory();

  std::atomic<std::uint32_t> tid_{0};
  std::atomic<std::uint32_t> last_tid_{0};
  AppAddr memory_;
  std::size_t bytes_ = 0;
  const char* name_ = nullptr;
  void (*function_)(void*) = nullptr;
  void* argument_ = nullptr;
};

}  // namespace penumbra
