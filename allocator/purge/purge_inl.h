// The deferred clean-up: passes over all nodes, in steps, with a cursor and a chunk that survive between steps.
//
// A pass thins each node's pools (by a quarter of each size, if that many were not needed since the last pass; all of
// it when full), purges what had been freed when the pass came to the node, and gives free zones back
// (collect_inl.h). A step takes one chunk in hand and tears it down (tear_down_inl.h): at most chunk_areas_ areas or
// chunk_pages_ pages of memory, one flush. Whoever holds the purge mutex owns pass, cursor and chunk; steps of
// ordinary allocations and frees only try for it.
//
// P1  the cursor moves only while the chunk is empty: what was taken in hand is settled before the pass goes on, in
//     as many steps as it takes, and its flush is made once (chunk.h).
// P2  memory is dropped and guarded before counts are released, counts before the shadow is flushed, and a range is
//     free again only after its memory is inaccessible (memory rulings 1, 6).
// P3  a request (a report that leaves the threshold reached) that arrives during a pass makes one more whole pass
//     (ruling 11): the pass remembers the number of the last report at its start, and whoever releases the mutex looks
//     again.
// P4  no kernel call is made under a node's lock, and what an area needs to become free again it has: its record.
// P5  every drainer (of lists, pools, zones, dying shadow) holds the purge mutex (facts kasan 1.6 #17).
// P6  an allocation that finds nothing purges step by step until it finds something, at most to the end of one whole
//     pass that began after it came.
//
// Part of RegionAllocator (allocator/region/region_allocator.h), included by region_allocator.cc only.
//
// zone: nomalloc
#pragma once

#include "allocator/purge/collect_inl.h"
#include "allocator/purge/tear_down_inl.h"
#include "allocator/region/region_allocator.h"
#include "runtime/base/os_process.h"

namespace penumbra::region {

// Frees of signal handlers that one call finishes: poisoned and queued, about 10 us.
inline constexpr std::uint32_t kDrainedAtOnce = 64;
// With a worker: allocations and frees make steps as well when this many thresholds wait, which it cannot keep up with.
inline constexpr std::uint64_t kThresholdsUntilHelp = 3;
// How long the worker rests at once while somebody waits for its mutex.
inline constexpr std::uint64_t kNapNs = 1'000'000;

// Freed pages are reported after the lock they were queued under is released, so that a purge may count them down
// first: for a moment the sum can be below nothing.
template <class Shadow>
bool RegionAllocator<Shadow>::is_threshold_reached() const {
  return static_cast<std::int64_t>(waiting_.load(std::memory_order_seq_cst)) >=
         static_cast<std::int64_t>(threshold_pages_);
}

template <class Shadow>
void RegionAllocator<Shadow>::poll_slow() {
  // Before the late faults are looked at: a handler that tells of one then is not missed.
  if (worker_.is_wanted()) wanted_.store(false, std::memory_order_seq_cst);
  tell_late_faults();
  if (worker_.is_wanted()) {
    const bool serves = worker_.ensure();
    if (serves) worker_.ring();
    if (serves && !is_worker_behind()) return;
    wanted_.store(true, std::memory_order_seq_cst);
  }
  purge_step();
}

// The worker's, if there is one that keeps up; else the next allocation's or free's. Signal-safe.
template <class Shadow>
void RegionAllocator<Shadow>::ask_for_step() {
  if (worker_.is_wanted() && worker_.is_serving()) {
    worker_.ring();
    if (!is_worker_behind()) return;
  }
  wanted_.store(true, std::memory_order_seq_cst);
}

template <class Shadow>
bool RegionAllocator<Shadow>::is_worker_behind() const {
  return static_cast<std::int64_t>(waiting_.load(std::memory_order_relaxed)) >=
         static_cast<std::int64_t>(kThresholdsUntilHelp * threshold_pages_);
}

template <class Shadow>
bool RegionAllocator<Shadow>::is_step_due() const {
  return signal_frees_.load(std::memory_order_seq_cst) != kNoHandle || is_threshold_reached();
}

template <class Shadow>
void RegionAllocator<Shadow>::init_worker(const Config& config) {
  Worker::Job job;
  job.owner = this;
  job.step = [](void* owner) { return static_cast<RegionAllocator*>(owner)->worker_step(); };
  job.is_due = [](void* owner) { return static_cast<RegionAllocator*>(owner)->is_step_due(); };
  job.idle_ns = config.worker_idle_ns;
  job.before_sleep = config.before_sleep;
  worker_.init(job);
}

template <class Shadow>
void RegionAllocator<Shadow>::hold_worker() {
  worker_.stand_down();
  // What it has left is everybody's.
  if (worker_.is_wanted()) wanted_.store(true, std::memory_order_seq_cst);
}

// A step of the worker's thread, which may wait for the mutex, but not take it again and again from those in need. Late
// faults are the program's to tell: a report needs more of a thread than ours is.
template <class Shadow>
bool RegionAllocator<Shadow>::worker_step() {
  for (std::uint32_t need; (need = in_need_.load(std::memory_order_acquire)) != 0;) {
    os::futex_wait_for(&in_need_, need, kNapNs).ignore();
  }
  purge_mutex_.lock();
  const bool left = drain_signal_frees_locked(is_unchunked_ ? ~0u : kDrainedAtOnce);
  const bool worked = step_locked(Urgency::kDeferred) || left;
  if (worked) worker_chunks_.fetch_add(1, std::memory_order_relaxed);
  const bool active = cursor_.active;
  const std::uint64_t seen = cursor_.seq;
  purge_mutex_.unlock();
  look_again(seen, active);
  return worked;
}

template <class Shadow>
void RegionAllocator<Shadow>::lock_for_need() {
  in_need_.fetch_add(1, std::memory_order_seq_cst);
  purge_mutex_.lock();
  in_need_.fetch_sub(1, std::memory_order_seq_cst);
}

template <class Shadow>
bool RegionAllocator<Shadow>::purge_step() {
  if (!purge_mutex_.try_lock()) return false;
  const bool left = drain_signal_frees_locked(is_unchunked_ ? ~0u : kDrainedAtOnce);
  const bool worked = step_locked(Urgency::kDeferred) || left;
  if (left) ask_for_step();
  const std::uint64_t seen = cursor_.seq;
  const bool active = cursor_.active;
  purge_mutex_.unlock();
  look_again(seen, active);
  return worked;
}

// Whoever asked while we held the mutex found it taken and left; so did a signal handler.
template <class Shadow>
void RegionAllocator<Shadow>::look_again(std::uint64_t seen, bool active) {
  if (has_late_faults_.load(std::memory_order_seq_cst)) wanted_.store(true, std::memory_order_seq_cst);
  if (signal_frees_.load(std::memory_order_seq_cst) != kNoHandle) ask_for_step();
  if (!active && request_seq_.load(std::memory_order_seq_cst) != seen && is_threshold_reached()) {
    ask_for_step();
  }
}

template <class Shadow>
void RegionAllocator<Shadow>::begin_pass_locked(Urgency urgency) {
  cursor_ = {};
  cursor_.active = true;
  cursor_.seq = request_seq_.load(std::memory_order_seq_cst);
  if (urgency == Urgency::kShortage) cursor_.full_number = ++full_begun_;
  passes_.fetch_add(1, std::memory_order_relaxed);
}

// One step, if one is due. False when there was nothing to do.
template <class Shadow>
bool RegionAllocator<Shadow>::step_locked(Urgency urgency) {
  if (!cursor_.active && chunk_.stage == Stage::kEmpty) {
    const std::uint64_t seq = request_seq_.load(std::memory_order_seq_cst);
    if (urgency == Urgency::kDeferred && !is_threshold_reached()) {
      cursor_.seq = seq;
      wanted_.store(false, std::memory_order_seq_cst);
      return false;
    }
    begin_pass_locked(urgency);
  }
  // A pass that somebody in need began stays a full one, whoever does its steps.
  cursor_.full = urgency == Urgency::kShortage || cursor_.full_number != 0;
  const std::uint64_t before = os::thread_cpu_ns();
  const std::uint64_t pass = passes_.load(std::memory_order_relaxed);
  do {
    advance_locked();
  } while (is_unchunked_ && cursor_.active && passes_.load(std::memory_order_relaxed) == pass);
  const std::uint64_t spent = os::thread_cpu_ns() - before;
  chunks_.fetch_add(1, std::memory_order_relaxed);
  if (spent > longest_chunk_ns_.load(std::memory_order_relaxed)) {
    longest_chunk_ns_.store(spent, std::memory_order_relaxed);
  }
  if (step_hook_ != nullptr) step_hook_(spent);
  return true;
}

template <class Shadow>
void RegionAllocator<Shadow>::advance_locked() {
  if (chunk_.stage == Stage::kEmpty) collect_locked(chunk_);
  if (chunk_.stage != Stage::kEmpty) tear_down_locked(chunk_);
  if (chunk_.stage == Stage::kEmpty && cursor_.node > node_count_) end_pass_locked();
}

template <class Shadow>
void RegionAllocator<Shadow>::end_pass_locked() {
  if (!cursor_.active) return;
  cursor_.active = false;
  if (cursor_.full_number != 0) full_ended_ = cursor_.full_number;
  // Asked again meanwhile, it begins anew.
  if (request_seq_.load(std::memory_order_seq_cst) != cursor_.seq && is_threshold_reached()) {
    begin_pass_locked(Urgency::kDeferred);
  } else {
    wanted_.store(false, std::memory_order_seq_cst);
  }
}

// A step for somebody who cannot go on without. False when a whole full pass has come and gone since the first call
// with this `shortage`. Between two steps the mutex is free for others.
template <class Shadow>
bool RegionAllocator<Shadow>::relieve(Shortage& shortage) {
  tell_late_faults();
  lock_for_need();
  const bool left = drain_signal_frees_locked(kDrainedAtOnce);
  if (shortage.until == 0 && !left) shortage.until = full_begun_ + 1;
  const bool more = shortage.until == 0 || full_ended_ < shortage.until;
  if (more) step_locked(Urgency::kShortage);
  if (left) ask_for_step();
  const std::uint64_t seen = cursor_.seq;
  const bool active = cursor_.active;
  purge_mutex_.unlock();
  look_again(seen, active);
  return more;
}

template <class Shadow>
void RegionAllocator<Shadow>::purge_all() {
  for (Shortage shortage; relieve(shortage);) {
  }
  lock_for_need();
  for (std::size_t before = shadow_.dying(); before != 0;) {
    const Flushed flushed = flush_shadow_locked(0);
    tlb_.flush(flushed.ranges, flushed.pages);
    const std::size_t after = shadow_.dying();
    if (after >= before) break;  // the kernel refuses, or takers are faster
    before = after;
  }
#if PENUMBRA_VALIDATE >= 1
  for (unsigned n = 0; n <= node_count_; ++n) nodes_[n].lock.lock();
  validate_locked();
  for (unsigned n = 0; n <= node_count_; ++n) nodes_[n].lock.unlock();
#endif
  purge_mutex_.unlock();
}

}  // namespace penumbra::region
