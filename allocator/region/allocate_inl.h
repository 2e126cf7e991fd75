// How an area comes to be: from a pool, from a zone, or from the global node.
//
// Part of RegionAllocator (region_allocator.h), included by region_allocator.cc only.
//
// zone: nomalloc
#pragma once

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>

#include "allocator/region/region_allocator.h"
#include "allocator/region/thread_hint.h"

namespace penumbra::region {

inline constexpr std::uint32_t kUnitPages = shadow::kUnitSize / kPageSize;
// Retained memory is zeroed by hand up to here, and dropped above: two page faults cost as much (memory ruling 13).
inline constexpr std::size_t kZeroByHand = 16 << 10;
// Zones opened at once, at most: the frontier moves in steps that grow with use, up to 64 MiB (memory ruling 2).
inline constexpr std::uint32_t kMaxZoneStep = 16;

// Stacks have a cache of their own (stack_pool.h), and inaccessible pages in front that a pool must not hand on.
constexpr bool is_pooled_kind(AreaKind kind) {
  return kind != AreaKind::kArena && kind != AreaKind::kStack;
}

// The caller may map files over the pages of these.
constexpr bool may_be_mapped_over(AreaKind kind) {
  return kind == AreaKind::kVmap || kind == AreaKind::kMapRam || kind == AreaKind::kPages;
}

// Others poison inside these by themselves, so that every unit must be populated.
constexpr bool may_be_sparse(AreaKind kind) {
  return kind == AreaKind::kVmalloc || kind == AreaKind::kHeapLarge || kind == AreaKind::kStack;
}

// What fits into a record (record.h).
constexpr bool is_valid_guard(const Request& request) {
  if (request.guard_before == 0) return true;
  return request.kind == AreaKind::kStack && request.guard_before % kPageSize == 0 &&
         request.guard_before < request.bytes && request.guard_before >> kPageShift < (1u << 14);
}

template <class Shadow>
AppAddr RegionAllocator<Shadow>::allocate(const Request& request) {
  if (request.bytes == 0 || !is_power_of_two(request.alignment) || !is_valid_guard(request)) {
    errno = EINVAL;
    return AppAddr();
  }
  std::size_t alignment = std::max(request.alignment, kPageSize);
  if (request.huge && request.bytes >= kHugePageSize) alignment = std::max(alignment, kHugePageSize);
  if (is_due()) [[unlikely]]
    poll_slow();
  if (request.bytes < span_.bytes() && alignment < span_.bytes()) {
    const auto pages = static_cast<std::uint32_t>((request.bytes + kPageSize - 1) >> kPageShift);
    const auto align_pages = static_cast<std::uint32_t>(alignment >> kPageShift);
    const bool small = pages <= kMaxPooledPages && align_pages <= kZonePages && is_pooled_kind(request.kind);
    Shortage shortage;
    do {
      const Handle h =
          small ? allocate_small(request, pages, align_pages) : allocate_large(request, pages, align_pages);
      if (h != kNoHandle) [[likely]]
        return begin_of(records_[h]);
      // What was freed may be all that is missing.
    } while (relieve(shortage));
  }
  errno = ENOMEM;
  return AppAddr();
}

// The node of the CPU this thread runs on, or ran on a moment ago; another one where that is contended.
template <class Shadow>
Node& RegionAllocator<Shadow>::lock_local_node() {
  Node& node = nodes_[remembered_cpu() % node_count_];
  if (node.lock.try_lock()) [[likely]]
    return node;
  Node& other = nodes_[look_at_cpu() % node_count_];
  other.lock.lock();
  return other;
}

template <class Shadow>
Handle RegionAllocator<Shadow>::allocate_small(const Request& request, std::uint32_t pages, std::uint32_t alignment) {
  Node& node = lock_local_node();
  const Handle h = node.pop_pooled(records_, pages, alignment, origin());
  if (h == kNoHandle) [[unlikely]] {
    node.lock.unlock();
    return allocate_fresh(request, pages, alignment);
  }
  Record& r = records_[h];
  r.state.store(RecordState::kOpening, std::memory_order_relaxed);
  node.live_areas.add(1);
  node.live_bytes.add(request.bytes);
  // Pools are walked through: by the time the next of this size is asked for, its shadow has arrived, and what the
  // caller will touch first if it kept its memory.
  const Handle next = r.next;
  if (next != kNoHandle) {
    const AppAddr begin = begin_of(records_[next]);
    const bool has_memory = (records_[next].flags & Record::kHasMemory) != 0;
    node.lock.unlock();
    shadow_.expect(begin, bytes_of(pages));
    if (has_memory) expect_write(begin.ptr());
  } else {
    node.lock.unlock();
  }
  if (request.zero && (r.flags & Record::kHasMemory) != 0 && !make_zero(r, request.bytes)) [[unlikely]] {
    r.area.requested = request.bytes;
    r.state.store(RecordState::kFreed, std::memory_order_release);
    retire(r, h);
    return kNoHandle;
  }
  publish(r, request);
  return h;
}

template <class Shadow>
bool RegionAllocator<Shadow>::make_zero(Record& r, std::size_t bytes) {
  // Pages that are not in memory would be brought in only to be zeroed.
  if (bytes <= kZeroByHand && r.area.resident == r.pages) {
    raw_set(begin_of(r).ptr(), 0, bytes);
    return true;
  }
  if (!Guards::drop(begin_of(r), bytes_of(r.pages))) return false;
  r.area.resident = 0;
  return true;
}

// Everything a caller may see of the area, then its state: whoever finds it live finds the rest (facts 1.3).
template <class Shadow>
void RegionAllocator<Shadow>::publish(Record& r, const Request& request) {
  r.kind = request.kind;
  r.flags |= Record::kHasMemory;
  if (may_be_mapped_over(request.kind)) r.flags |= Record::kMapped;
  r.area.requested = request.bytes;
  r.area.allocated = request.stack;
  r.area.freed = kNoStack;
  r.area.allocated_by = this_thread_id();
  r.area.freed_by = 0;
  if (r.node != node_count_) [[likely]] {
    shadow_.allow(begin_of(r), request.bytes, bytes_of(r.pages));
  } else if (request.kind != AreaKind::kArena) {
    const AppAddr begin = begin_of(r);
    const AppRange interior = interior_of(r);
    const std::size_t lead = interior.begin - begin;
    const std::size_t guard = guard_before(r);
    const std::size_t edge = interior.end - begin;
    if (guard != 0) [[unlikely]] {
      shadow_.guard(begin, std::min(guard, interior.bytes() != 0 ? lead : guard));
      if (interior.bytes() != 0 && guard > edge) shadow_.guard(interior.end, guard - edge);
    }
    if (lead > guard) shadow_.allow(begin + guard, lead - guard, lead - guard);
    const std::size_t before = std::max(edge, guard);
    shadow_.allow(begin + before, request.bytes - before, bytes_of(r.pages) - before);
  }
  r.state.store(RecordState::kLive, std::memory_order_release);
#if PENUMBRA_VALIDATE >= 2
  validate_area_shadow(r);
#endif
}

template <class Shadow>
Handle RegionAllocator<Shadow>::allocate_fresh(const Request& request, std::uint32_t pages, std::uint32_t alignment) {
  const unsigned home = remembered_cpu() % node_count_;
  Handle h = carve_from(nodes_[home], home, pages, alignment);
  if (h == kNoHandle && add_zones(home)) h = carve_from(nodes_[home], home, pages, alignment);
  // No free zone: what other nodes have left.
  for (unsigned i = 1; h == kNoHandle && i < node_count_; ++i) {
    const unsigned other = (home + i) % node_count_;
    h = carve_from(nodes_[other], other, pages, alignment);
  }
  if (h == kNoHandle) return h;
  Record& r = records_[h];
  const AppAddr begin = begin_of(r);
  if (!shadow_.take(begin, bytes_of(r.area.span_pages))) {
    give_back(r, h);
    return kNoHandle;
  }
  shadow_.guard(begin + bytes_of(pages), kPageSize);
  const bool opened = open_area(r, begin, pages);
  Node& node = nodes_[r.node];
  node.lock.lock();
  node.live_areas.add(1);
  node.live_bytes.add(request.bytes);
  node.lock.unlock();
  if (!opened) [[unlikely]] {
    // Part of it may be open. It ends as any freed area does: poisoned, then closed by a purge.
    r.area.requested = request.bytes;
    r.state.store(RecordState::kFreed, std::memory_order_release);
    retire(r, h);
    return kNoHandle;
  }
  publish(r, request);
  return h;
}

// Takes the lowest fitting range of a node, as a record that is opening.
template <class Shadow>
Handle RegionAllocator<Shadow>::carve_from(Node& node, unsigned number, std::uint32_t pages,
                                           std::uint32_t alignment) {
  LockGuard guard(node.lock);
  std::uint32_t page;
  if (!node.unused.ensure(records_, 2) || !node.free.find(pages + 1, alignment, origin(), page)) return kNoHandle;
  node.free.carve(page, pages + 1, node.unused);
  const Handle h = node.unused.pop(records_);
  Record& r = records_[h];
  r.node = static_cast<std::uint8_t>(number);
  r.kind = AreaKind::kVmalloc;  // until it is published
  r.flags = 0;
  r.page = page;
  r.pages = pages;
  r.area = {};
  r.area.span_pages = pages + 1;
  r.state.store(RecordState::kOpening, std::memory_order_relaxed);
  index_.set(page, pages + 1, h);
  return h;
}

template <class Shadow>
bool RegionAllocator<Shadow>::open_area(Record& r, AppAddr begin, std::uint32_t pages) {
  switch (guards_.open(begin, bytes_of(pages))) {
    case Guards::Opened::kExactly: return true;
    case Guards::Opened::kWholeUnits:
      r.flags |= Record::kWhole;
      shadow_.pin(begin, bytes_of(pages + 1));
      return true;
    case Guards::Opened::kFailed: break;
  }
  return false;
}

// Undoes carve_from() or its large sibling: the memory of the range is still inaccessible.
template <class Shadow>
void RegionAllocator<Shadow>::give_back(Record& r, Handle h) {
  Node& node = nodes_[r.node];
  LockGuard guard(node.lock);
  const std::uint32_t page = r.page;
  const std::uint32_t pages = r.area.span_pages;
  index_.set_large(page, pages, kNoHandle);
  node.free.insert(h, page, pages, node.unused);
}

template <class Shadow>
bool RegionAllocator<Shadow>::add_zones(unsigned number) {
  // Half of what the node has already, so that small programs open (and at fork copy) little.
  const std::uint32_t step =
      std::clamp<std::uint32_t>(static_cast<std::uint32_t>(nodes_[number].zones.value() / 2), 1, kMaxZoneStep);
  return add_zone_run(number, step) || (step > 1 && add_zone_run(number, 1));
}

template <class Shadow>
bool RegionAllocator<Shadow>::add_zone_run(unsigned number, std::uint32_t zones) {
  const std::uint32_t pages = zones * kZonePages;
  std::uint32_t page;
  Handle h;  // describes the run until it is in a tree
  {
    LockGuard guard(global().lock);
    if (!global().unused.ensure(records_, 2) || !global().free.find(pages, kZonePages, origin(), page)) return false;
    global().free.carve(page, pages, global().unused);
    h = global().unused.pop(records_);
    zones_in_hand_.fetch_add(1, std::memory_order_relaxed);
  }
  if (!guards_.open_zones(address_of(page), bytes_of(pages))) {
    LockGuard guard(global().lock);
    global().free.insert(h, page, pages, global().unused);
    zones_in_hand_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  for (std::uint32_t z = 0; z < zones; ++z) index_.set_by_page((page >> kZonePagesShift) + z);
  Node& node = nodes_[number];
  LockGuard guard(node.lock);
  node.zones.add(zones);
  node.free.insert(h, page, pages, node.unused);
  zones_in_hand_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

template <class Shadow>
Handle RegionAllocator<Shadow>::allocate_large(const Request& request, std::uint32_t pages, std::uint32_t alignment) {
  const std::uint64_t span_pages = round_up(std::uint64_t{pages} + 1, kUnitPages);
  if (span_pages > span_.bytes() >> kPageShift) return kNoHandle;
  Handle h;
  {
    LockGuard guard(global().lock);
    std::uint32_t page;
    if (!global().unused.ensure(records_, 2) ||
        !global().free.find(static_cast<std::uint32_t>(span_pages), std::max(alignment, kUnitPages), origin(),
                            page)) {
      return kNoHandle;
    }
    global().free.carve(page, static_cast<std::uint32_t>(span_pages), global().unused);
    h = global().unused.pop(records_);
    Record& r = records_[h];
    r.node = static_cast<std::uint8_t>(node_count_);
    r.flags = may_be_sparse(request.kind) ? Record::kSparse : 0;
    r.page = page;
    r.pages = pages;
    r.area = {};
    r.area.span_pages = static_cast<std::uint32_t>(span_pages);
    r.area.requested = request.bytes;
    r.area.resident = (request.guard_before >> kPageShift) & 0x3fff;
    r.next = kNoHandle;
    r.kind = request.kind;
    r.state.store(RecordState::kOpening, std::memory_order_relaxed);
    index_.set_large(page, r.area.span_pages, h);
  }
  Record& r = records_[h];
  if (!open_large(r, request)) {
    give_back(r, h);
    return kNoHandle;
  }
  {
    LockGuard guard(global().lock);
    global().live_areas.add(1);
    global().live_bytes.add(request.bytes);
  }
  publish(r, request);
  return h;
}

// Counts in the units of an area that are not left to its interior. An arena's are all left to the heap.
template <class Shadow>
bool RegionAllocator<Shadow>::take_edges(const Record& r) {
  if (r.kind == AreaKind::kArena) return true;
  const AppAddr begin = begin_of(r);
  const AppRange interior = interior_of(r);
  const std::size_t lead = interior.begin - begin;
  if (lead != 0 && !shadow_.take(begin, lead)) return false;
  if (shadow_.take(interior.end, end_of(r) - interior.end)) return true;
  if (lead != 0) shadow_.release(begin, lead);
  return false;
}

template <class Shadow>
void RegionAllocator<Shadow>::release_edges(const Record& r) {
  if (r.kind == AreaKind::kArena) return;
  const AppAddr begin = begin_of(r);
  const AppRange interior = interior_of(r);
  if (interior.begin != begin) shadow_.release(begin, interior.begin - begin);
  shadow_.release(interior.end, end_of(r) - interior.end);
}

template <class Shadow>
bool RegionAllocator<Shadow>::open_large(Record& r, const Request& request) {
  const AppAddr begin = begin_of(r);
  const std::size_t payload = bytes_of(r.pages);
  const AppAddr opened = begin + guard_before(r);  // the guard in front of a stack stays as it is: inaccessible
  const AppRange interior = interior_of(r);
  // What former areas left there becomes accessible.
  shadow_.take_sparse(interior.begin, interior.bytes());
  const bool taken = take_edges(r);
  if (!taken || !guards_.open_large(opened, begin + payload - opened, end_of(r) - opened)) {
    if (taken) release_edges(r);
    shadow_.forbid_sparse(interior.begin, interior.bytes());
    shadow_.release_sparse(interior.begin, interior.bytes());
    return false;
  }
  if (r.kind != AreaKind::kArena) shadow_.guard(begin + payload, end_of(r) - (begin + payload));
  if (request.huge && request.bytes >= kHugePageSize) {
    // A hint; closing the area maps it anew and takes the advice back.
    os::advise(begin, round_down(payload, kHugePageSize), MADV_HUGEPAGE).ignore();
  }
  return true;
}

}  // namespace penumbra::region
