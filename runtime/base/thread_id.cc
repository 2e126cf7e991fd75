#include "runtime/base/thread_id.h"

#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"

#include <sys/mman.h>

namespace penumbra {
namespace {

constinit std::atomic<std::uint32_t> g_no_mark{1};  // stands in for the page where there is none
constinit std::atomic<void (*)()> g_child_hook{nullptr};
constinit std::atomic<void (*)()> g_thread_hook{nullptr};

void run(const std::atomic<void (*)()>& slot) {
  if (void (*const hook)() = slot.load(std::memory_order_acquire)) hook();
}

}  // namespace

namespace internal {

constinit std::atomic<std::uint32_t>* g_fork_mark = &g_no_mark;
constinit thread_local std::uint32_t t_tid = 0;

std::uint32_t find_tid() {
  const bool is_new = t_tid == 0;
  t_tid = static_cast<std::uint32_t>(os::gettid());
  std::uint32_t wiped = 0;
  if (g_fork_mark->compare_exchange_strong(wiped, 1)) run(g_child_hook);
  if (is_new) run(g_thread_hook);
  return t_tid;
}

}  // namespace internal

void init_fork_mark() {
  if (internal::g_fork_mark != &g_no_mark) return;
  const os::Result page = os::map_anonymous(kPageSize);
  if (!page.ok()) return;
  if (!os::advise(page.address(), kPageSize, MADV_WIPEONFORK).ok()) {
    os::unmap(page.address(), kPageSize).ignore();
    return;
  }
  auto* const mark = page.address().ptr<std::atomic<std::uint32_t>>();
  mark->store(1, std::memory_order_relaxed);
  internal::g_fork_mark = mark;
}

void set_unannounced_child_hook(void (*hook)()) {
  g_child_hook.store(hook, std::memory_order_release);
}

void set_new_thread_hook(void (*hook)()) {
  g_thread_hook.store(hook, std::memory_order_release);
}

void announce_child() {
  internal::t_tid = static_cast<std::uint32_t>(os::gettid());
  internal::g_fork_mark->store(1, std::memory_order_relaxed);
}

}  // namespace penumbra
