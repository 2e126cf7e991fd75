// The deferred clean-up: passes over all nodes, in chunks, with a cursor that survives between chunks.
//
// A pass thins each node's pools (by a quarter of each size, if that many were not needed since the last pass; all of
// it when full), purges what had been freed when the
// pass came to the node, and gives free zones back. A chunk is a step of it: at most chunk_areas_ areas or 512 pages
// of memory, one flush. The owner of the pass is whoever holds the purge mutex; nobody waits for it except
// purge_all() and fork.
//
// P1  a chunk finishes what it took in hand before the cursor moves: between chunks no area is in no list.
// P2  memory is dropped and guarded before counts are released, counts before the shadow is flushed, and a range is
//     free again only after its memory is inaccessible (memory rulings 1, 6).
// P3  a request that arrives during a pass makes one more whole pass (ruling 11): the pass remembers the number of
//     the last request at its start, and whoever releases the mutex looks again.
// P4  no kernel call is made under a node's lock, and what an area needs to become free again it has: its record.
//
// Part of RegionAllocator (allocator/region/region_allocator.h), included by region_allocator.cc only.
//
// zone: nomalloc
#pragma once

#include <algorithm>

#include "allocator/region/region_allocator.h"

namespace penumbra::region {

// Pages of memory that end a chunk early (memory ruling 10): about 150 us of dropping.
inline constexpr std::uint32_t kChunkPages = 512;
// Purges of an area from one count of its memory to the next.
inline constexpr std::uint32_t kCountedEvery = 8;

template <class Shadow>
void RegionAllocator<Shadow>::poll_slow() {
  drain_signal_frees();
  purge_step();
}

template <class Shadow>
bool RegionAllocator<Shadow>::purge_step() {
  if (!purge_mutex_.try_lock()) return false;
  const bool worked = step_locked();
  const std::uint64_t seen = cursor_.seq;
  const bool active = cursor_.active;
  purge_mutex_.unlock();
  // Whoever asked while we held the mutex found it taken and left; so did a signal handler.
  if (signal_frees_.load(std::memory_order_seq_cst) != kNoHandle ||
      has_late_faults_.load(std::memory_order_seq_cst)) {
    wanted_.store(true, std::memory_order_seq_cst);
  }
  if (!active && request_seq_.load(std::memory_order_seq_cst) != seen &&
      waiting_.load(std::memory_order_seq_cst) >= threshold_pages_) {
    wanted_.store(true, std::memory_order_seq_cst);
  }
  return worked;
}

template <class Shadow>
void RegionAllocator<Shadow>::begin_pass_locked(bool full) {
  cursor_ = {};
  cursor_.active = true;
  cursor_.full = full;
  cursor_.seq = request_seq_.load(std::memory_order_seq_cst);
  passes_.fetch_add(1, std::memory_order_relaxed);
}

// One chunk, if one is due. False when there was nothing to do.
template <class Shadow>
bool RegionAllocator<Shadow>::step_locked() {
  if (!cursor_.active) {
    const std::uint64_t seq = request_seq_.load(std::memory_order_seq_cst);
    if (waiting_.load(std::memory_order_seq_cst) < threshold_pages_) {
      cursor_.seq = seq;
      wanted_.store(false, std::memory_order_seq_cst);
      return false;
    }
    begin_pass_locked(false);
  }
  chunk_locked();
  if (cursor_.node > node_count_) {
    // The pass is through. Asked again meanwhile, it begins anew.
    const bool again = request_seq_.load(std::memory_order_seq_cst) != cursor_.seq &&
                       waiting_.load(std::memory_order_seq_cst) >= threshold_pages_;
    cursor_.active = false;
    if (again) {
      begin_pass_locked(false);
    } else {
      wanted_.store(false, std::memory_order_seq_cst);
    }
  }
  return true;
}

template <class Shadow>
void RegionAllocator<Shadow>::chunk_locked() {
  const std::uint64_t before = os::thread_cpu_ns();
  const std::uint32_t count = collect_locked();
  if (count != 0) tear_down_locked(count);
  chunks_.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t spent = os::thread_cpu_ns() - before;
  if (spent > longest_chunk_ns_.load(std::memory_order_relaxed)) {
    longest_chunk_ns_.store(spent, std::memory_order_relaxed);
  }
}

// Moves the cursor until a chunk is full or the pass is through; the areas are in chunk_[0..count).
template <class Shadow>
std::uint32_t RegionAllocator<Shadow>::collect_locked() {
  std::uint32_t count = 0;
  std::uint32_t pages = 0;
  // Pools may hold what one pass brings beside as much that is left from earlier ones.
  const std::uint64_t pool_limit = 2 * threshold_pages_;
  std::uint64_t pooled = 0;
  for (unsigned n = 0; n < node_count_; ++n) pooled += nodes_[n].pooled_pages.value();
  while (cursor_.node <= node_count_ && count < chunk_areas_ && pages < kChunkPages) {
    Node& node = nodes_[cursor_.node];
    if (cursor_.phase == Phase::kZones) {
      // At most one zone a chunk, after everything else of it: returning one is a system call of its own.
      if (count != 0) break;
      if (cursor_.node < node_count_ && return_zone_locked(cursor_.node)) return 0;
      cursor_.phase = Phase::kDecay;
      cursor_.entered = false;
      cursor_.size = 0;
      ++cursor_.node;
      continue;
    }
    const bool decay = cursor_.phase == Phase::kDecay;
    Handle h = kNoHandle;
    node.lock.lock();
    if (!cursor_.entered) {
      cursor_.entered = true;
      if (decay) {
        Pool& pool = node.pools[cursor_.size];
        // A quarter, of what was not needed; rounded up only where nothing was.
        cursor_.quota = pool.fewest == pool.count ? (pool.count + 3) / 4 : std::min(pool.fewest, pool.count / 4);
        if (cursor_.full) cursor_.quota = pool.count;
        pool.fewest = pool.count;
      } else {
        cursor_.quota = node.lazy.count;
      }
      if (!decay && node.waiting_unreported != 0) {
        waiting_.fetch_add(node.waiting_unreported, std::memory_order_relaxed);
        node.waiting_unreported = 0;
      }
    }
    while (cursor_.quota > 0 && count < chunk_areas_ && pages < kChunkPages) {
      --cursor_.quota;
      if (decay) {
        h = node.pop_oldest_pooled(records_, cursor_.size);
      } else {
        h = node.pop_lazy(records_);
      }
      if (h == kNoHandle) {
        cursor_.quota = 0;
        break;
      }
      Record& r = records_[h];
      r.state.store(RecordState::kPurging, std::memory_order_relaxed);
      if (!decay) {
        waiting_.fetch_sub(r.area.span_pages, std::memory_order_relaxed);
      }
      const bool pools = !decay && !cursor_.full && cursor_.node < node_count_ && pooled + r.pages <= pool_limit;
      if (pools) pooled += r.pages;
      r.flags = static_cast<std::uint8_t>(pools ? r.flags & ~Record::kMustClose : r.flags | Record::kMustClose);
      if ((r.flags & Record::kHasMemory) != 0) pages += r.pages;
      chunk_[count++] = h;
    }
    node.lock.unlock();
    if (cursor_.quota > 0) break;  // the chunk is full
    cursor_.entered = false;
    if (decay && ++cursor_.size <= kMaxPooledPages) continue;
    cursor_.phase = decay ? Phase::kLazy : Phase::kZones;
  }
  return count;
}

template <class Shadow>
std::uint64_t RegionAllocator<Shadow>::retained_pages() const {
  std::uint64_t pages = 0;
  for (unsigned n = 0; n < node_count_; ++n) pages += nodes_[n].retained_pages.value();
  return pages;
}

// How much memory each area of a chunk holds, as far as it may keep it: untouched pages use up no budget. The kernel
// is asked when an area is purged for the first time and then every eighth time, because it takes as long to answer
// as a page fault takes, and areas of one size are mostly used alike. A single page, and what has no answer, counts
// whole.
template <class Shadow>
void RegionAllocator<Shadow>::count_resident_locked(std::uint32_t count) {
  const std::uint64_t passes = passes_.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < count; ++i) {
    Record& r = records_[chunk_[i]];
    constexpr std::uint8_t kAsked = Record::kHasMemory | Record::kMustClose | Record::kMapped;
    if ((r.flags & kAsked) != Record::kHasMemory) continue;
    if (r.area.is_counted && (passes + chunk_[i]) % kCountedEvery != 0) continue;
    std::uint32_t resident = r.pages;
    unsigned char in_core[kMaxPooledPages];
    if (r.pages > 1 && os::in_core(begin_of(r), bytes_of(r.pages), in_core).ok()) {
      resident = 0;
      for (std::uint32_t p = 0; p < r.pages; ++p) resident += in_core[p] & 1;
    }
    r.area.resident = resident & 0x7fff;
    r.area.is_counted = true;
  }
}

template <class Shadow>
void RegionAllocator<Shadow>::tear_down_locked(std::uint32_t count) {
  // By address, so that neighbours become one range.
  std::sort(chunk_, chunk_ + count, [this](Handle a, Handle b) { return records_[a].page < records_[b].page; });
  gather_.reset();
  std::uint64_t retained = 0;
  if (retain_pages_ != 0) {
    retained = retained_pages();
    count_resident_locked(count);
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    Record& r = records_[chunk_[i]];
    const AppAddr begin = begin_of(r);
    const bool must_close = (r.flags & Record::kMustClose) != 0;
    if (r.node == node_count_) continue;  // large: closed by itself
    if ((r.flags & Record::kMapped) != 0) {
      // Whatever the caller mapped here gives way to memory of ours.
      if (!os::remap_fresh(begin, bytes_of(r.pages)).ok()) {
        r.flags |= Record::kMustClose;
        continue;
      }
      r.flags = static_cast<std::uint8_t>(r.flags & ~(Record::kMapped | Record::kHasMemory));
    }
    if ((r.flags & Record::kHasMemory) != 0) {
      if (!must_close && r.area.resident != 0 && retained + r.area.resident <= retain_pages_) {
        retained += r.area.resident;
        if (retained > retain_pages_ / 4) gather_.add_lazy_free(begin, bytes_of(r.pages));
      } else {
        gather_.add_drop(begin, bytes_of(r.pages));
        r.flags |= Record::kDropping;
      }
    }
    if (must_close && (r.flags & Record::kWhole) == 0 && guards_.kind() == GuardKind::kMarker) {
      gather_.add_guard(begin, bytes_of(r.pages));
    }
  }
  if (!gather_.is_empty()) {
    flushed_pages_.fetch_add(gather_.pages(), std::memory_order_relaxed);
    const Gather::Outcome outcome = gather_.submit();
    for (std::uint32_t i = 0; i < count; ++i) {
      Record& r = records_[chunk_[i]];
      const bool gone = outcome.dropped && (r.flags & Record::kDropping) != 0;
      // Kept against our will: as if all of it were in memory.
      if ((r.flags & Record::kDropping) != 0 && !gone) r.area.resident = r.pages & 0x7fff;
      r.flags = static_cast<std::uint8_t>(r.flags & ~(Record::kDropping | (gone ? Record::kHasMemory : 0)));
      if (outcome.guarded && (r.flags & Record::kMustClose) != 0 && (r.flags & Record::kWhole) == 0 &&
          r.node != node_count_ && guards_.kind() == GuardKind::kMarker) {
        r.flags |= Record::kClosed;
      }
    }
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    Record& r = records_[chunk_[i]];
    if ((r.flags & Record::kMustClose) != 0) close_locked(r);
  }
  flush_shadow_locked(cursor_.full ? 0 : shadow_keep_pages_);
  flushes_.fetch_add(1, std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < count; ++i) settle_locked(chunk_[i]);
}

// The area goes back to a free tree: its memory becomes inaccessible if it is not yet, or its units are pinned; then
// its counts are released. An area that nothing can close stays kPurging without kClosed.
template <class Shadow>
void RegionAllocator<Shadow>::close_locked(Record& r) {
  const AppAddr begin = begin_of(r);
  const std::size_t total = bytes_of(r.area.span_pages);
  if (r.node == node_count_) {
    if ((r.flags & Record::kClosed) == 0) {
      if (!guards_.close_large(begin, total)) return;
      r.flags |= Record::kClosed;
    }
    const AppRange interior = interior_of(r);
    shadow_.release_sparse(interior.begin, interior.bytes());
    release_edges(r);
    return;
  }
  if ((r.flags & Record::kMapped) != 0) {
    if (!os::remap_fresh(begin, bytes_of(r.pages)).ok()) return;
    r.flags = static_cast<std::uint8_t>(r.flags & ~(Record::kMapped | Record::kHasMemory));
  }
  if ((r.flags & (Record::kClosed | Record::kWhole)) == 0 && !guards_.close(begin, bytes_of(r.pages))) {
    if (!Guards::drop(begin, bytes_of(r.pages))) return;
    shadow_.pin(begin, total);
  }
  if ((r.flags & Record::kWhole) != 0 && (r.flags & Record::kHasMemory) != 0 &&
      !Guards::drop(begin, bytes_of(r.pages))) {
    return;
  }
  r.flags |= Record::kClosed;
  shadow_.release(begin, total);
}

template <class Shadow>
void RegionAllocator<Shadow>::flush_shadow_locked(std::size_t keep) {
  if (shadow_.dying() <= keep) return;
  const std::size_t ranges = shadow_.begin_flush(keep, gather_.shadow_ranges(), Gather::kMaxRanges);
  if (ranges == 0) return;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < ranges; ++i) bytes += gather_.shadow_ranges()[i].iov_len;
  flushed_pages_.fetch_add(bytes / kPageSize, std::memory_order_relaxed);
  shadow_.end_flush(gather_.drop_shadow(ranges));
}

// After the flush: into the pool of its size, or back into the free tree, or (nothing could close it) to the end of
// the lazy list, for a later pass.
template <class Shadow>
void RegionAllocator<Shadow>::settle_locked(Handle h) {
  Record& r = records_[h];
  Node& node = nodes_[r.node];
  if ((r.flags & Record::kMustClose) == 0) {
    LockGuard guard(node.lock);
    r.state.store(RecordState::kPooled, std::memory_order_relaxed);
    node.push_pooled(records_, h);
    return;
  }
  if ((r.flags & Record::kClosed) == 0) {
    LockGuard guard(node.lock);
    r.state.store(RecordState::kFreed, std::memory_order_relaxed);
    node.push_lazy(records_, h);
    node.waiting_unreported += r.area.span_pages;
    return;
  }
  const std::uint32_t page = r.page;
  const std::uint32_t pages = r.area.span_pages;
  history_->add({page, r.pages, r.area.requested, r.area.allocated, r.area.freed, r.area.allocated_by,
                 r.area.freed_by, r.kind});
  LockGuard guard(node.lock);
  if (r.node == node_count_) {
    index_.set_large(page, pages, AreaIndex::kGone);
  } else {
    index_.set(page, pages, AreaIndex::kGone);
  }
  node.free.insert(h, page, pages, node.unused);
}

// Gives one wholly free zone of a node back to the global one, as PROT_NONE without page tables. A node keeps as much
// as the next pass may bring back (a zone costs 21 us to close, as much to open, and 8 KiB of page tables), except in
// a full pass.
template <class Shadow>
bool RegionAllocator<Shadow>::return_zone_locked(unsigned number) {
  Node& node = nodes_[number];
  if (!guards_.maps_are_plenty()) return false;
  std::uint32_t page;
  Handle h;
  {
    LockGuard guard(node.lock);
    const std::uint64_t kept = cursor_.full ? 0 : std::max<std::uint64_t>(kZonePages, threshold_pages_ / 2);
    if (node.free.largest() < kZonePages || node.free.free_pages() < kept + kZonePages ||
        !node.free.find(kZonePages, kZonePages, origin(), page) || !node.unused.ensure(records_, 2)) {
      return false;
    }
    node.free.carve(page, kZonePages, node.unused);
    h = node.unused.pop(records_);
    node.zones.sub(1);
  }
  const bool closed = guards_.close_zone(address_of(page), kZoneSize);
  if (closed) shadow_.unpin(address_of(page), kZoneSize);
  Node& owner = closed ? global() : node;
  LockGuard guard(owner.lock);
  if (!closed) node.zones.add(1);
  owner.free.insert(h, page, kZonePages, owner.unused);
  return closed;
}

template <class Shadow>
void RegionAllocator<Shadow>::purge_all() {
  drain_signal_frees();
  LockGuard guard(purge_mutex_);
  // What a pass under way has in hand first, then all of it.
  begin_pass_locked(true);
  while (cursor_.node <= node_count_) chunk_locked();
  cursor_.active = false;
  wanted_.store(false, std::memory_order_seq_cst);
  for (std::size_t before = shadow_.dying(); before != 0;) {
    flush_shadow_locked(0);
    const std::size_t after = shadow_.dying();
    if (after >= before) break;  // the kernel refuses, or takers are faster
    before = after;
  }
#if PENUMBRA_VALIDATE >= 1
  for (unsigned n = 0; n <= node_count_; ++n) nodes_[n].lock.lock();
  validate_locked();
  for (unsigned n = 0; n <= node_count_; ++n) nodes_[n].lock.unlock();
#endif
}

}  // namespace penumbra::region
