// OwnThread by pthread_create, for programs that ThreadSanitizer watches: it must know every thread.
#include <pthread.h>
#include <sched.h>

#include "runtime/base/own_thread.h"

namespace penumbra {

void OwnThread::learn_thread_locals() {}

void OwnThread::enter(void* self) {
  auto& thread = *static_cast<OwnThread*>(self);
  thread.function_(thread.argument_);
  thread.tid_.store(0, std::memory_order_release);
}

bool OwnThread::start(const char*, void (*function)(void*), void* argument) {
  if (!is_gone()) return false;
  function_ = function;
  argument_ = argument;
  tid_.store(1, std::memory_order_relaxed);
  pthread_t made;
  const auto enter_thread = [](void* self) -> void* {
    enter(self);
    return nullptr;
  };
  if (pthread_create(&made, nullptr, enter_thread, this) != 0) {
    tid_.store(0, std::memory_order_relaxed);
    return false;
  }
  pthread_detach(made);
  return true;
}

bool OwnThread::wait_gone(std::uint64_t) {
  while (!is_gone()) sched_yield();
  return true;
}

void OwnThread::destroy() {}

}  // namespace penumbra
