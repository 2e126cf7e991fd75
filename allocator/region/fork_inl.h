// Fork in a threaded program: everything stands still around it, and the child has no other threads.
//
// Part of RegionAllocator (region_allocator.h), included by region_allocator.cc only.
//
// zone: nomalloc
#pragma once

#include "allocator/region/region_allocator.h"
#include "allocator/region/thread_hint.h"

namespace penumbra::region {

template <class Shadow>
void RegionAllocator<Shadow>::lock_all() {
  lock_for_need();
  for (unsigned n = 0; n <= node_count_; ++n) nodes_[n].lock.lock();
}

template <class Shadow>
void RegionAllocator<Shadow>::unlock_all() {
  for (unsigned n = node_count_ + 1; n > 0; --n) nodes_[n - 1].lock.unlock();
  purge_mutex_.unlock();
}

template <class Shadow>
void RegionAllocator<Shadow>::fork_prepare() {
  lock_all();
  // A fill needs no lock, so those under way end by themselves.
  while (shadow_.fills_in_flight() != 0) __builtin_ia32_pause();
}

template <class Shadow>
void RegionAllocator<Shadow>::fork_parent() {
  unlock_all();
}

// The locks are this thread's own: it took them in fork_prepare(). Areas that other threads had just taken or claimed
// stay as they are, a few pages at most: who knows how far their owners had come.
template <class Shadow>
void RegionAllocator<Shadow>::fork_child() {
  thread_hint.tid = 0;
  shadow_.repair_after_fork();
  worker_.fork_child();
  crew_.forget_after_fork();
  in_need_.store(0, std::memory_order_relaxed);
  // There is no worker here: whoever allocates looks what is due, and starts one.
  if (worker_.is_wanted()) wanted_.store(true, std::memory_order_relaxed);
  unlock_all();
}

}  // namespace penumbra::region
