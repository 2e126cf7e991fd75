#include "allocator/purge/crew.h"

#include "runtime/base/os_linux.h"

namespace penumbra::region {
namespace {

// A helper is at work or in the kernel's hands when it is to end.
constexpr std::uint64_t kMoment = 1'000'000'000;

}  // namespace

void Crew::serve(void* self) {
  auto& helper = *static_cast<Helper*>(self);
  for (;;) {
    const std::uint32_t order = helper.order.load(std::memory_order_acquire);
    if (order == kEnd) return;
    if (order == kRest) {
      os::futex_wait(&helper.order, kRest).ignore();
      continue;
    }
    helper.task(helper.owner, helper.number);
    helper.order.store(kRest, std::memory_order_release);
    os::futex_wake(&helper.order, 1).ignore();
  }
}

bool Crew::give(Helper& helper, Task task, void* owner, unsigned number) {
  helper.task = task;
  helper.owner = owner;
  helper.number = number;
  helper.order.store(kWork, std::memory_order_release);
  if (!helper.thread.is_gone()) {
    os::futex_wake(&helper.order, 1).ignore();
    return true;
  }
  if (helper.thread.start("penumbra-help", serve, &helper)) return true;
  helper.order.store(kRest, std::memory_order_relaxed);
  return false;
}

void Crew::run(unsigned count, Task task, void* owner) {
  bool is_given[kMost] = {};
  for (unsigned n = 1; n < count; ++n) is_given[n] = give(helpers_[n - 1], task, owner, n);
  task(owner, 0);
  for (unsigned n = 1; n < count; ++n) {
    if (!is_given[n]) task(owner, n);
  }
  for (unsigned n = 1; n < count; ++n) {
    std::atomic<std::uint32_t>& order = helpers_[n - 1].order;
    while (is_given[n] && order.load(std::memory_order_acquire) == kWork) {
      os::futex_wait(&order, kWork).ignore();
    }
  }
}

void Crew::dismiss() {
  for (Helper& helper : helpers_) {
    if (helper.thread.is_gone()) continue;
    helper.order.store(kEnd, std::memory_order_release);
    os::futex_wake(&helper.order, 1).ignore();
  }
  for (Helper& helper : helpers_) {
    while (!helper.thread.wait_gone(kMoment) && !os::is_sealed()) {
    }
    helper.order.store(kRest, std::memory_order_relaxed);
  }
}

void Crew::forget_after_fork() {
  for (Helper& helper : helpers_) {
    helper.thread.forget_after_fork();
    helper.order.store(kRest, std::memory_order_relaxed);
  }
}

void Crew::destroy() {
  dismiss();
  for (Helper& helper : helpers_) helper.thread.destroy();
}

}  // namespace penumbra::region
