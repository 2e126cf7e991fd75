// Where a pass goes: from node to node, and in each from its pools over its freed areas to its free zones. Lanes side by
// side have different nodes.
//
// Part of RegionAllocator (allocator/region/region_allocator.h), included by region_allocator.cc only.
//
// zone: nomalloc
#pragma once

#include <algorithm>

#include "allocator/region/region_allocator.h"

namespace penumbra::region {

// A phase of a node begins: how many areas it will take at most, so that what is freed meanwhile waits for the next
// pass. The node's lock is held.
template <class Shadow>
void RegionAllocator<Shadow>::enter_phase_locked(Node& node, Cursor& cursor) {
  cursor.entered = true;
  if (cursor.phase == Phase::kDecay) {
    Pool& pool = node.pools[cursor.size];
    // A quarter, of what was not needed; rounded up only where nothing was.
    cursor.quota = pool.fewest == pool.count ? (pool.count + 3) / 4 : std::min(pool.fewest, pool.count / 4);
    if (pass_.full) cursor.quota = pool.count;
    pool.fewest = pool.count;
    return;
  }
  cursor.quota = node.lazy.count;
  if (node.waiting_unreported != 0) {
    waiting_.fetch_add(node.waiting_unreported, std::memory_order_relaxed);
    node.waiting_unreported = 0;
  }
}

// Room in a chunk: for areas, and for pages of memory, of which the first area may have any number (ruling 10). An
// area that is closed takes the place of two: markers, counts and trees cost as much again as dropping its memory.
template <class Shadow>
bool RegionAllocator<Shadow>::has_room(const Chunk& chunk, std::uint32_t pages, Handle next) const {
  if (chunk.count == 0) return true;
  if (chunk.count + chunk.closing >= chunk_areas_) return false;
  const Record& r = records_[next];
  return (r.flags & Record::kHasMemory) == 0 || pages + r.pages <= chunk_pages_;
}

// The freed area that begins where this one's guard ends, if it waits in the same list. Areas that were used side by
// side are often given up together; torn down together they are one range for the kernel and share their shadow.
template <class Shadow>
Handle RegionAllocator<Shadow>::lazy_neighbour_of(Handle h) const {
  const Record& r = records_[h];
  const std::uint32_t page = r.page + r.area.span_pages;
  // In a zone everything belongs to one node, whose lock is held.
  if (page / kZonePages != r.page / kZonePages || r.node == node_count_) return kNoHandle;
  const Handle next = index_.at(page);
  if (next == kNoHandle || next == AreaIndex::kGone) return kNoHandle;
  const Record& n = records_[next];
  return n.state.load(std::memory_order_acquire) == RecordState::kFreed && n.area.is_lazy ? next : kNoHandle;
}

// From its list into the chunk; how many pages of memory that may mean.
template <class Shadow>
std::uint32_t RegionAllocator<Shadow>::take_in_hand(Node& node, Handle h, Lane& lane, std::uint64_t& pooled) {
  const Cursor& cursor = lane.cursor;
  Chunk& chunk = lane.chunk;
  Record& r = records_[h];
  if (cursor.phase == Phase::kDecay) {
    node.take_pooled(records_, h);
  } else {
    node.take_lazy(records_, h);
    waiting_.fetch_sub(r.area.span_pages, std::memory_order_relaxed);
  }
  r.state.store(RecordState::kPurging, std::memory_order_relaxed);
  // Pools may hold what one pass brings beside as much that is left from earlier ones.
  const bool pools = cursor.phase == Phase::kLazy && !pass_.full && cursor.node < node_count_ &&
                     pooled + r.pages <= 2 * threshold_pages_;
  if (pools) pooled += r.pages;
  r.flags = static_cast<std::uint8_t>(pools ? r.flags & ~Record::kMustClose : r.flags | Record::kMustClose);
  chunk.closing += !pools;
  chunk.areas[chunk.count++] = h;
  return (r.flags & Record::kHasMemory) != 0 ? r.pages : 0;
}

// The next node that no lane has; false at the end of the pass.
template <class Shadow>
bool RegionAllocator<Shadow>::take_node(Cursor& cursor) {
  if (!pass_.active || next_node_.load(std::memory_order_relaxed) > node_count_) return false;
  const unsigned node = next_node_.fetch_add(1, std::memory_order_relaxed);
  if (node > node_count_) return false;
  cursor = {};
  cursor.node = node;
  cursor.has_node = true;
  return true;
}

// Moves the lane's cursor until the chunk is full or no node is left.
template <class Shadow>
void RegionAllocator<Shadow>::collect_locked(Lane& lane) {
  Chunk& chunk = lane.chunk;
  Cursor& cursor = lane.cursor;
  PENUMBRA_CHECK(chunk.stage == Stage::kEmpty && purge_mutex_.is_locked());  // P1, P5
  chunk.count = chunk.closing = chunk.settled = 0;
  std::uint32_t pages = 0;
  std::uint64_t pooled = 0;
  for (unsigned n = 0; n < node_count_; ++n) pooled += nodes_[n].pooled_pages.value();
  while (cursor.has_node || take_node(cursor)) {
    Node& node = nodes_[cursor.node];
    if (cursor.phase == Phase::kZones) {
      // At most one zone a step, after everything else of it: returning one is a system call of its own.
      if (chunk.count != 0) break;
      if (cursor.node < node_count_ && return_zone_locked(cursor.node)) break;
      cursor.has_node = false;
      continue;
    }
    const bool decay = cursor.phase == Phase::kDecay;
    bool is_full = false;
    node.lock.lock();
    if (!cursor.entered) enter_phase_locked(node, cursor);
    while (cursor.quota > 0) {
      Handle h = decay ? node.pools[cursor.size].oldest : node.lazy.oldest;
      if (h == kNoHandle) {  // allocations were faster, or others were taken along
        cursor.quota = 0;
        break;
      }
      is_full = !has_room(chunk, pages, h);
      if (is_full) break;
      --cursor.quota;
      do {
        pages += take_in_hand(node, h, lane, pooled);
        h = decay ? kNoHandle : lazy_neighbour_of(h);
      } while (h != kNoHandle && has_room(chunk, pages, h));
    }
    node.lock.unlock();
    if (is_full) break;
    cursor.entered = false;
    if (decay && ++cursor.size <= kMaxPooledPages) continue;
    cursor.phase = decay ? Phase::kLazy : Phase::kZones;
  }
  if (chunk.count != 0) chunk.stage = Stage::kCollected;
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
    const std::uint64_t kept = pass_.full ? 0 : std::max<std::uint64_t>(kZonePages, threshold_pages_ / 2);
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

}  // namespace penumbra::region
