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
// P7  the worker works in several lanes when twice the threshold waits: one for each threshold that does, at most one for
//     each node, Crew::kMost in all. Each has a node of its own, and all are joined before the step ends.
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
  return signal_frees_.load(std::memory_order_seq_cst) != kNoHandle ||
         drained_.load(std::memory_order_seq_cst) != kNoHandle || is_threshold_reached();
}

template <class Shadow>
void RegionAllocator<Shadow>::init_worker(const Config& config) {
  Worker::Job job;
  job.owner = this;
  job.step = [](void* owner) { return static_cast<RegionAllocator*>(owner)->worker_step(); };
  job.is_due = [](void* owner) { return static_cast<RegionAllocator*>(owner)->is_step_due(); };
  job.rest = [](void* owner) { static_cast<RegionAllocator*>(owner)->crew_.dismiss(); };
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
  const unsigned lanes = lanes_worth();
  const bool stepped = lanes > 1 ? step_in_parallel_locked(lanes) : step_locked(Urgency::kDeferred);
  const bool worked = stepped || left;
  if (worked) worker_chunks_.fetch_add(1, std::memory_order_relaxed);
  const bool active = pass_.active;
  const std::uint64_t seen = pass_.seq;
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
  const std::uint64_t seen = pass_.seq;
  const bool active = pass_.active;
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
  pass_ = {};
  pass_.active = true;
  pass_.seq = request_seq_.load(std::memory_order_seq_cst);
  next_node_.store(0, std::memory_order_relaxed);
  if (urgency == Urgency::kShortage) pass_.full_number = ++full_begun_;
  passes_.fetch_add(1, std::memory_order_relaxed);
}

// False when there is nothing to do.
template <class Shadow>
bool RegionAllocator<Shadow>::begin_step_locked(Urgency urgency) {
  if (!pass_.active && lane_in_hand().is_idle()) {
    const std::uint64_t seq = request_seq_.load(std::memory_order_seq_cst);
    if (urgency == Urgency::kDeferred && !is_threshold_reached()) {
      pass_.seq = seq;
      wanted_.store(false, std::memory_order_seq_cst);
      return false;
    }
    begin_pass_locked(urgency);
  }
  // A pass that somebody in need began stays a full one, whoever does its steps.
  pass_.full = urgency == Urgency::kShortage || pass_.full_number != 0;
  return true;
}

// One step, if one is due. False when there was nothing to do.
template <class Shadow>
bool RegionAllocator<Shadow>::step_locked(Urgency urgency) {
  if (!begin_step_locked(urgency)) return false;
  const std::uint64_t before = os::thread_cpu_ns();
  const std::uint64_t pass = passes_.load(std::memory_order_relaxed);
  do {
    advance_locked();
  } while (is_unchunked_ && pass_.active && passes_.load(std::memory_order_relaxed) == pass);
  end_step_locked(os::thread_cpu_ns() - before);
  return true;
}

template <class Shadow>
void RegionAllocator<Shadow>::end_step_locked(std::uint64_t spent) {
  chunks_.fetch_add(1, std::memory_order_relaxed);
  if (spent > longest_chunk_ns_.load(std::memory_order_relaxed)) {
    longest_chunk_ns_.store(spent, std::memory_order_relaxed);
  }
  if (step_hook_ != nullptr) step_hook_(spent);
}

// The first lane that is not through with its node, whoever was at it.
template <class Shadow>
typename RegionAllocator<Shadow>::Lane& RegionAllocator<Shadow>::lane_in_hand() {
  for (Lane& lane : lanes_) {
    if (!lane.is_idle()) return lane;
  }
  return lanes_[0];
}

template <class Shadow>
void RegionAllocator<Shadow>::advance_locked() {
  Lane& lane = lane_in_hand();
  if (lane.chunk.stage == Stage::kEmpty) collect_locked(lane);
  if (lane.chunk.stage != Stage::kEmpty) tear_down_locked(lane.chunk);
  end_pass_locked();
}

// How many lanes what waits is worth.
template <class Shadow>
unsigned RegionAllocator<Shadow>::lanes_worth() const {
  const auto waiting = static_cast<std::int64_t>(waiting_.load(std::memory_order_relaxed));
  if (is_unchunked_ || waiting < static_cast<std::int64_t>(2 * threshold_pages_)) return 1;
  const std::uint64_t worth = static_cast<std::uint64_t>(waiting) / threshold_pages_;
  return static_cast<unsigned>(std::min<std::uint64_t>(worth, std::min(node_count_, Crew::kMost)));
}

// A step of several lanes, the worker's. What takes long, the kernel's part, is done side by side; one flush serves all;
// what one hand at a time may write (history, dying shadow) the caller does.
template <class Shadow>
bool RegionAllocator<Shadow>::step_in_parallel_locked(unsigned lanes) {
  if (!begin_step_locked(Urgency::kDeferred)) return false;
  budget_locked(lanes);
  crew_.run(
      lanes,
      [](void* owner, unsigned number) {
        auto& allocator = *static_cast<RegionAllocator*>(owner);
        allocator.prepare_lane(allocator.lanes_[number]);
      },
      this);
  const std::uint64_t before = os::thread_cpu_ns();
  std::size_t ranges = 0;
  std::size_t pages = 0;
  for (Lane& lane : lanes_) {
    if (lane.chunk.stage != Stage::kCleared) continue;
    ranges += lane.chunk.gather.ranges();
    pages += lane.chunk.gather.pages();
  }
  const Flushed shadow = flush_shadow_locked(pass_.full ? 0 : shadow_keep_pages_);
  tlb_.flush(ranges + shadow.ranges, pages + shadow.pages);
  for (Lane& lane : lanes_) {
    if (lane.chunk.stage == Stage::kCleared) lane.chunk.stage = Stage::kFlushed;
    if (lane.chunk.stage == Stage::kFlushed && settle_locked(lane.chunk)) lane.chunk.stage = Stage::kEmpty;
  }
  std::uint64_t spent = 0;
  for (unsigned n = 0; n < lanes; ++n) spent = std::max(spent, lanes_[n].spent_ns);
  end_step_locked(spent + (os::thread_cpu_ns() - before));
  end_pass_locked();
  return true;
}

// P1 for each lane: what is in hand is settled before its cursor moves.
template <class Shadow>
void RegionAllocator<Shadow>::prepare_lane(Lane& lane) {
  const std::uint64_t before = os::thread_cpu_ns();
  if (lane.chunk.stage == Stage::kEmpty) collect_locked(lane);
  if (lane.chunk.stage == Stage::kCollected) {
    clear_locked(lane.chunk);
    lane.chunk.stage = Stage::kCleared;
  }
  lane.spent_ns = os::thread_cpu_ns() - before;
}

// If the pass is through: no node is left, and no lane is in one or has anything in hand.
template <class Shadow>
void RegionAllocator<Shadow>::end_pass_locked() {
  if (!pass_.active || next_node_.load(std::memory_order_relaxed) <= node_count_ || !lane_in_hand().is_idle()) return;
  pass_.active = false;
  if (pass_.full_number != 0) full_ended_ = pass_.full_number;
  // Asked again meanwhile, it begins anew.
  if (request_seq_.load(std::memory_order_seq_cst) != pass_.seq && is_threshold_reached()) {
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
  const std::uint64_t seen = pass_.seq;
  const bool active = pass_.active;
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
