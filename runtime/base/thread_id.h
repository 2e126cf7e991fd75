// Who runs: the thread id, cached, and the knowledge of having been forked, however that was done.
//
// One page is marked MADV_WIPEONFORK and holds 1. A child that finds 0 there is new: fork() calls its hooks,
// but clone and _Fork call nobody (memory ruling 7), and only the page tells. Whoever first asks for a thread
// id in such a child runs the child hook, alone, before anything else of ours.
//
// I1  current_tid() is the kernel's id of the calling thread, except in a vfork child, which shares its
// parent's.
//
// zone: signal-safe
#pragma once

#include <atomic>
#include <cstdint>

namespace penumbra {

namespace internal {
extern constinit std::atomic<std::uint32_t>* g_fork_mark;
extern constinit thread_local std::uint32_t t_tid;
std::uint32_t find_tid();
}  // namespace internal

// Maps the page. Without it (the kernel refused) hookless children are not noticed. Called once at start.
void init_fork_mark();
// Runs in a child that no fork hook announced, in its only thread.
void set_unannounced_child_hook(void (*hook)());
// Runs once in every thread, when it first asks for its id.
void set_new_thread_hook(void (*hook)());
// For fork's own child hook: from now on this process is known.
void announce_child();

inline std::uint32_t current_tid() {
  const std::uint32_t tid = internal::t_tid;
  if (tid != 0 && internal::g_fork_mark->load(std::memory_order_relaxed) != 0) [[likely]] {
    return tid;
  }
  return internal::find_tid();
}

}  // namespace penumbra
