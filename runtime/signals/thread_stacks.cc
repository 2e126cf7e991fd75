#include "runtime/signals/thread_stacks.h"

#include <sys/mman.h>

#include "runtime/base/config.h"
#include "runtime/base/locks.h"
#include "runtime/base/os_linux.h"

namespace penumbra::signals {
namespace {

constexpr std::size_t kStride = kPageSize + kThreadStackBytes;
constexpr std::size_t kStacksAtOnce = 16;

// Lies in the highest bytes of a stack that nobody uses: the page that a signal would touch first.
struct Unused {
  std::uint8_t* next;
};

constinit Mutex g_lock;
constinit std::uint8_t* g_unused = nullptr;

Unused& link_of(std::uint8_t* stack) {
  return *reinterpret_cast<Unused*>(stack + kThreadStackBytes - sizeof(Unused));
}

void push_locked(std::uint8_t* stack) {
  link_of(stack).next = g_unused;
  g_unused = stack;
}

// A guard page that the kernel refuses makes a deep handler dangerous, not a report: the stack is used all the same.
bool map_more_locked() {
  const os::Result mapped = os::map_noreserve(kStacksAtOnce * kStride);
  if (!mapped.ok()) return false;
  for (std::size_t i = 0; i < kStacksAtOnce; ++i) {
    const AppAddr guard = mapped.address() + i * kStride;
    os::protect(guard, kPageSize, PROT_NONE).ignore();
    push_locked((guard + kPageSize).ptr());
  }
  return true;
}

}  // namespace

std::uint8_t* take_thread_stack_memory() {
  const LockGuard guard(g_lock);
  if (g_unused == nullptr && !map_more_locked()) return nullptr;
  std::uint8_t* const stack = g_unused;
  g_unused = link_of(stack).next;
  return stack;
}

void give_thread_stack_memory(std::uint8_t* stack) {
  const LockGuard guard(g_lock);
  push_locked(stack);
}

void reset_thread_stacks_after_fork() {
  g_lock.reset_after_fork();
}

}  // namespace penumbra::signals
