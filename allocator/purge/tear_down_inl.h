// How a chunk ends: its areas are cleared together, flushed together, and go back one by one.
//
// Part of RegionAllocator (allocator/region/region_allocator.h), included by region_allocator.cc only.
//
// zone: nomalloc
#pragma once

#include <algorithm>

#include "allocator/region/region_allocator.h"

namespace penumbra::region {

// Purges of an area from one count of its memory to the next.
inline constexpr std::uint32_t kCountedEvery = 8;
// Areas given back under one hold of their node's lock: about 2 us.
inline constexpr std::uint32_t kSettledAtOnce = 16;
// Pauses before a step gives up on a node's lock: a holder that runs is through by then, one that does not may take
// milliseconds.
inline constexpr int kLockSpins = 64;
// Dying shadow above what is kept waits until so many pages have gathered: the few that die in one step cost a call
// that takes as long as dropping all of these.
inline constexpr std::size_t kShadowBatch = 64;

// Takes the chunk as far as it goes; empty again means that nothing is left of it (C2 of chunk.h).
template <class Shadow>
void RegionAllocator<Shadow>::tear_down_locked(Chunk& chunk) {
  if (chunk.stage == Stage::kCollected) {
    budget_locked(1);
    clear_locked(chunk);
    chunk.stage = Stage::kCleared;
  }
  if (chunk.stage == Stage::kCleared) {
    // One flush: memory, guards and shadow of the whole chunk (ruling 12).
    const Flushed shadow = flush_shadow_locked(pass_.full ? 0 : shadow_keep_pages_);
    tlb_.flush(chunk.gather.ranges() + shadow.ranges, chunk.gather.pages() + shadow.pages);
    chunk.stage = Stage::kFlushed;
  }
  if (settle_locked(chunk)) chunk.stage = Stage::kEmpty;
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
void RegionAllocator<Shadow>::count_resident_locked(const Chunk& chunk) {
  const std::uint64_t passes = passes_.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < chunk.count; ++i) {
    Record& r = records_[chunk.areas[i]];
    constexpr std::uint8_t kAsked = Record::kHasMemory | Record::kMustClose | Record::kMapped;
    if ((r.flags & kAsked) != Record::kHasMemory) continue;
    if (r.area.is_counted && (passes + chunk.areas[i]) % kCountedEvery != 0) continue;
    std::uint32_t resident = r.pages;
    unsigned char in_core[kMaxPooledPages];
    if (r.pages > 1 && os::in_core(begin_of(r), bytes_of(r.pages), in_core).ok()) {
      resident = 0;
      for (std::uint32_t p = 0; p < r.pages; ++p) resident += in_core[p] & 1;
    }
    r.area.resident = resident & 0x3fff;
    r.area.is_counted = true;
  }
}

// What chunks that are cleared side by side may keep of memory: equal shares of what the budget has left.
template <class Shadow>
void RegionAllocator<Shadow>::budget_locked(unsigned lanes) {
  if (retain_pages_ == 0) return;
  retained_ = retained_pages();
  may_retain_ = retain_pages_ > retained_ ? (retain_pages_ - retained_) / lanes : 0;
}

// Memory dropped or kept, guards, then the counts of those that go back to a free tree.
template <class Shadow>
void RegionAllocator<Shadow>::clear_locked(Chunk& chunk) {
  // By address, so that neighbours become one range.
  std::sort(chunk.areas, chunk.areas + chunk.count,
            [this](Handle a, Handle b) { return records_[a].page < records_[b].page; });
  chunk.gather.reset();
  std::uint64_t kept = 0;
  if (retain_pages_ != 0) count_resident_locked(chunk);
  for (std::uint32_t i = 0; i < chunk.count; ++i) {
    Record& r = records_[chunk.areas[i]];
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
      if (!must_close && r.area.resident != 0 && kept + r.area.resident <= may_retain_) {
        kept += r.area.resident;
        if (retained_ + kept > retain_pages_ / 4) chunk.gather.add_lazy_free(begin, bytes_of(r.pages));
      } else {
        chunk.gather.add_drop(begin, bytes_of(r.pages));
        r.flags |= Record::kDropping;
      }
    }
    if (must_close && (r.flags & Record::kWhole) == 0 && guards_.kind() == GuardKind::kMarker) {
      chunk.gather.add_guard(begin, bytes_of(r.pages));
    }
  }
  if (!chunk.gather.is_empty()) {
    const Gather::Outcome outcome = chunk.gather.submit(guards_.batches());
    for (std::uint32_t i = 0; i < chunk.count; ++i) {
      Record& r = records_[chunk.areas[i]];
      const bool gone = outcome.dropped && (r.flags & Record::kDropping) != 0;
      // Kept against our will: as if all of it were in memory.
      if ((r.flags & Record::kDropping) != 0 && !gone) r.area.resident = r.pages & 0x3fff;
      r.flags = static_cast<std::uint8_t>(r.flags & ~(Record::kDropping | (gone ? Record::kHasMemory : 0)));
      if (outcome.guarded && (r.flags & Record::kMustClose) != 0 && (r.flags & Record::kWhole) == 0 &&
          r.node != node_count_ && guards_.kind() == GuardKind::kMarker) {
        r.flags |= Record::kClosed;
      }
    }
  }
  for (std::uint32_t i = 0; i < chunk.count; ++i) {
    Record& r = records_[chunk.areas[i]];
    if ((r.flags & Record::kMustClose) != 0) close_locked(r);
  }
}

// The area goes back to a free tree: its memory becomes inaccessible if it is not yet, or its units are pinned; then
// its counts are released, once. An area that nothing can close stays kPurging without kClosed.
template <class Shadow>
void RegionAllocator<Shadow>::close_locked(Record& r) {
  if ((r.flags & Record::kReleased) != 0) return;
  const AppAddr begin = begin_of(r);
  const std::size_t total = bytes_of(r.area.span_pages);
  if (r.node == node_count_) {
    if ((r.flags & Record::kClosed) == 0) {
      if (!guards_.close_large(begin, total)) return;
      r.flags |= Record::kClosed;
    }
    r.flags |= Record::kReleased;
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
  r.flags |= Record::kClosed | Record::kReleased;
  shadow_.release(begin, total);
}

// Drops shadow of units that died, the oldest first, until `keep` are left or the ranges of one submission are full; but
// not for a few.
template <class Shadow>
typename RegionAllocator<Shadow>::Flushed RegionAllocator<Shadow>::flush_shadow_locked(std::size_t keep) {
  if (shadow_.dying() <= keep + std::min(kShadowBatch, keep / 8)) return {};
  const std::size_t count = shadow_.begin_flush(keep, dying_shadow_, Gather::kMaxRanges);
  if (count == 0) return {};
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) bytes += dying_shadow_[i].iov_len;
  shadow_.end_flush(Gather::drop_shadow(dying_shadow_, count, guards_.batches()));
  return {count, bytes / kPageSize};
}

// After the flush each area goes into the pool of its size, or back into the free tree, or (nothing could close it)
// to the end of the lazy list, for a later pass. False when a node's lock was taken, or the step has done its share:
// the rest waits for the next step. A caller in need waits for locks and does it all.
template <class Shadow>
bool RegionAllocator<Shadow>::settle_locked(Chunk& chunk) {
  const std::uint32_t share = pass_.full ? chunk.count : std::min(chunk.count, chunk.settled + settle_areas_);
  while (chunk.settled < share) {
    Node& node = nodes_[records_[chunk.areas[chunk.settled]].node];
    if (!lock_for_settling(node)) return false;
    for (std::uint32_t i = 0; i < kSettledAtOnce && chunk.settled < share; ++i) {
      const Handle h = chunk.areas[chunk.settled];
      if (&nodes_[records_[h].node] != &node) break;
      settle_area_locked(node, h);
      ++chunk.settled;
    }
    node.lock.unlock();
  }
  return chunk.settled == chunk.count;
}

template <class Shadow>
bool RegionAllocator<Shadow>::lock_for_settling(Node& node) {
  if (pass_.full) {
    node.lock.lock();
    return true;
  }
  for (int spin = 0; spin < kLockSpins; ++spin) {
    if (node.lock.try_lock()) return true;
    __builtin_ia32_pause();
  }
  return false;
}

template <class Shadow>
void RegionAllocator<Shadow>::settle_area_locked(Node& node, Handle h) {
  Record& r = records_[h];
  if ((r.flags & Record::kMustClose) == 0) {
    r.state.store(RecordState::kPooled, std::memory_order_relaxed);
    node.push_pooled(records_, h);
    return;
  }
  if ((r.flags & Record::kClosed) == 0) {
    r.state.store(RecordState::kFreed, std::memory_order_relaxed);
    node.push_lazy(records_, h);
    node.waiting_unreported += r.area.span_pages;
    return;
  }
  const std::uint32_t page = r.page;
  const std::uint32_t pages = r.area.span_pages;
  history_->add({page, r.pages, r.area.requested, r.area.allocated, r.area.freed, r.area.allocated_by,
                 r.area.freed_by, r.kind, static_cast<std::uint16_t>(guard_before(r) >> kPageShift)});
  if (r.node == node_count_) {
    index_.set_large(page, pages, AreaIndex::kGone);
  } else {
    index_.set(page, pages, AreaIndex::kGone);
  }
  node.free.insert(h, page, pages, node.unused);
}

}  // namespace penumbra::region
