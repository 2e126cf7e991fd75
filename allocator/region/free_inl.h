// How an area ends: the claim, the verdict when there is nothing to claim, frees from signal handlers, resizing.
//
// Part of RegionAllocator (region_allocator.h), included by region_allocator.cc only.
//
// zone: nomalloc
#pragma once

#include "allocator/region/region_allocator.h"
#include "allocator/region/thread_hint.h"

namespace penumbra::region {

template <class Shadow>
FreeVerdict RegionAllocator<Shadow>::free(AppAddr begin, StackId stack) {
  Handle h = kNoHandle;
  const FreeVerdict verdict = claim(
      begin, RecordState::kFreed, [](AreaKind) { return true; }, h);
  return finish_free(verdict, h, stack);
}

template <class Shadow>
FreeVerdict RegionAllocator<Shadow>::free(AppAddr begin, StackId stack, AreaKind kind) {
  Handle h = kNoHandle;
  const FreeVerdict verdict = claim(
      begin, RecordState::kFreed, [kind](AreaKind k) { return k == kind; }, h);
  return finish_free(verdict, h, stack);
}

template <class Shadow>
FreeVerdict RegionAllocator<Shadow>::finish_free(FreeVerdict verdict, Handle h, StackId stack) {
  if (verdict != FreeVerdict::kFreed) [[unlikely]]
    return verdict;
  Record& r = records_[h];
  r.area.freed = stack;
  r.area.freed_by = this_thread_id();
  retire(r, h);
  if (is_due()) [[unlikely]]
    poll_slow();
  return verdict;
}

// Makes the caller the only owner of the live area that begins here. Reads two words of the index and swaps one of
// the record: no tree, no lock, safe in a signal handler.
template <class Shadow>
template <class Accepts>
FreeVerdict RegionAllocator<Shadow>::claim(AppAddr begin, RecordState to, Accepts accepts, Handle& claimed) {
  if (!owns(begin)) return FreeVerdict::kForeign;
  const std::uint32_t page = page_of(begin);
  const Handle h = index_.at(page);
  if (h == kNoHandle || h == AreaIndex::kGone) return verdict_for(begin, h);
  Record& r = records_[h];
  RecordState live = RecordState::kLive;
  if ((begin.value & (kPageSize - 1)) != 0 || r.page != page || !accepts(r.kind) ||
      !r.state.compare_exchange_strong(live, to, std::memory_order_acq_rel)) {
    return verdict_for(begin, h);
  }
  if (r.page != page) [[unlikely]] {
    // The area was purged and its record reused between our two looks: a free that raced with a free.
    r.state.store(RecordState::kLive, std::memory_order_release);
    return FreeVerdict::kDoubleFree;
  }
  claimed = h;
  return FreeVerdict::kFreed;
}

template <class Shadow>
FreeVerdict RegionAllocator<Shadow>::verdict_for(AppAddr begin, Handle h) const {
  const std::uint32_t page = page_of(begin);
  const bool aligned = (begin.value & (kPageSize - 1)) == 0;
  if (h == kNoHandle) return FreeVerdict::kForeign;
  if (h == AreaIndex::kGone) {
    PastArea past;
    return aligned && history_->find(page, past) && past.page == page ? FreeVerdict::kDoubleFree
                                                                      : FreeVerdict::kForeign;
  }
  const Record& r = records_[h];
  const RecordState state = r.state.load(std::memory_order_acquire);
  if (state == RecordState::kOpening || state == RecordState::kUnused || state == RecordState::kFreeRange) {
    return FreeVerdict::kForeign;
  }
  if (page - r.page >= r.pages) return FreeVerdict::kForeign;  // its guard
  if (!aligned || r.page != page) return FreeVerdict::kInterior;
  if (state == RecordState::kLive) return FreeVerdict::kForeign;  // of a kind that the caller may not free
  return FreeVerdict::kDoubleFree;
}

// Poison, then queue: a stale pointer used in between meets "freed region". The area is claimed.
template <class Shadow>
void RegionAllocator<Shadow>::retire(Record& r, Handle h) {
  const AppAddr begin = begin_of(r);
  if (r.node != node_count_) [[likely]] {
    shadow_.forbid(begin, bytes_of(r.pages));
  } else {
    // Large: inaccessible at once instead of poisoned byte by byte (memory ruling 4). What the kernel refuses here
    // is tried again by the purge; until then only checks see it.
    const AppRange interior = interior_of(r);
    if (r.kind != AreaKind::kArena) {
      if (interior.begin != begin) shadow_.forbid(begin, interior.begin - begin);
      shadow_.forbid(interior.end, begin + bytes_of(r.pages) - interior.end);
    }
    if (guards_.close_large(begin, bytes_of(r.area.span_pages))) {
      r.flags = static_cast<std::uint8_t>((r.flags | Record::kClosed) & ~Record::kHasMemory);
    }
    shadow_.forbid_sparse(interior.begin, interior.bytes());
  }
#if PENUMBRA_VALIDATE >= 2
  validate_area_shadow(r);
#endif
  Node& node = nodes_[r.node];
  std::uint32_t unreported = 0;
  node.lock.lock();
  node.live_areas.sub(1);
  node.live_bytes.sub(r.area.requested);
  node.push_lazy(records_, h);
  node.waiting_unreported += r.area.span_pages;
  if (node.waiting_unreported >= report_step_) {
    unreported = node.waiting_unreported;
    node.waiting_unreported = 0;
  }
  node.lock.unlock();
  if (unreported != 0) [[unlikely]]
    report_waiting(unreported);
}

// The request is counted before the threshold is looked at, so that a pass under way cannot miss it (ruling 11).
template <class Shadow>
void RegionAllocator<Shadow>::report_waiting(std::uint32_t pages) {
  const std::uint64_t waiting = waiting_.fetch_add(pages, std::memory_order_seq_cst) + pages;
  request_seq_.fetch_add(1, std::memory_order_seq_cst);
  if (waiting >= threshold_pages_) ask_for_step();
}

template <class Shadow>
void RegionAllocator<Shadow>::free_from_signal(AppAddr begin, StackId stack, const CodeContext& context,
                                               AreaKind kind) {
  Handle h = kNoHandle;
  const FreeVerdict verdict = claim(
      begin, RecordState::kFreed, [kind](AreaKind k) { return k == kind; }, h);
  if (verdict == FreeVerdict::kFreed) {
    Record& r = records_[h];
    r.area.freed = stack;
    r.area.freed_by = this_thread_id();
    // Now ours alone: the first granule may be poisoned, so that the next use is seen (memory ruling 9). Not in a
    // unit that a sparse area leaves unpopulated.
    if (r.node != node_count_ || !interior_of(r).contains(begin)) shadow_.forbid(begin, shadow::kGranuleSize);
    Handle head = signal_frees_.load(std::memory_order_relaxed);
    do {
      r.next = head;
    } while (!signal_frees_.compare_exchange_weak(head, h, std::memory_order_seq_cst, std::memory_order_relaxed));
    ask_for_step();
    return;
  }
  for (LateSlot& slot : late_) {
    std::uint32_t empty = 0;
    if (!slot.state.compare_exchange_strong(empty, 1, std::memory_order_acquire)) continue;
    slot.fault = {begin, verdict, context};
    slot.state.store(2, std::memory_order_release);
    has_late_faults_.store(true, std::memory_order_release);
    wanted_.store(true, std::memory_order_relaxed);
    return;
  }
  lost_late_faults_.fetch_add(1, std::memory_order_relaxed);
}

// Queues what signal handlers freed, at most `most` of it. True if some is left. Under the purge mutex.
template <class Shadow>
bool RegionAllocator<Shadow>::drain_signal_frees_locked(std::uint32_t most) {
  for (;; --most) {
    Handle h = drained_.load(std::memory_order_relaxed);
    if (h == kNoHandle && signal_frees_.load(std::memory_order_relaxed) != kNoHandle) {
      h = signal_frees_.exchange(kNoHandle, std::memory_order_acquire);
      drained_.store(h, std::memory_order_seq_cst);
    }
    if (h == kNoHandle || most == 0) return h != kNoHandle;
    drained_.store(records_[h].next, std::memory_order_seq_cst);
    retire(records_[h], h);
  }
}

template <class Shadow>
void RegionAllocator<Shadow>::tell_late_faults() {
  if (!has_late_faults_.load(std::memory_order_relaxed)) return;
  has_late_faults_.store(false, std::memory_order_relaxed);
  const LateFaultHook hook = late_fault_hook_.load(std::memory_order_acquire);
  for (LateSlot& slot : late_) {
    std::uint32_t full = 2;
    if (!slot.state.compare_exchange_strong(full, 1, std::memory_order_acquire)) continue;
    const LateFault fault = slot.fault;
    slot.state.store(0, std::memory_order_release);
    if (hook != nullptr) hook(fault);
  }
}

template <class Shadow>
ResizeVerdict RegionAllocator<Shadow>::resize(AppAddr begin, std::size_t bytes, StackId stack, AreaKind kind,
                                              std::size_t& old_bytes) {
  Handle h = kNoHandle;
  // Claimed, so that nobody else may free or resize it meanwhile.
  switch (claim(
      begin, RecordState::kResizing, [kind](AreaKind k) { return k == kind; }, h)) {
    case FreeVerdict::kFreed: break;
    case FreeVerdict::kDoubleFree: return ResizeVerdict::kDoubleFree;
    case FreeVerdict::kInterior: return ResizeVerdict::kInterior;
    case FreeVerdict::kForeign: return ResizeVerdict::kForeign;
  }
  Record& r = records_[h];
  const std::size_t old = old_bytes = r.area.requested;
  // A sparse area keeps its edge unit: units change between populated and not nowhere else.
  const AppRange interior = interior_of(r);
  const bool keeps_edge = interior.bytes() == 0
                              ? (r.flags & Record::kSparse) == 0
                              : AppAddr(round_down((begin + bytes).value, shadow::kUnitSize)) == interior.end;
  const bool fits = bytes != 0 && bytes <= bytes_of(r.pages) && r.kind != AreaKind::kArena && keeps_edge;
  if (fits) {
    shadow_.resize(begin, bytes, old);
    r.area.requested = bytes;
    r.area.allocated = stack;
    r.area.allocated_by = this_thread_id();
    Node& node = nodes_[r.node];
    LockGuard guard(node.lock);
    node.live_bytes.add(bytes - old);
  }
  r.state.store(RecordState::kLive, std::memory_order_release);
  return fits ? ResizeVerdict::kResized : ResizeVerdict::kMustMove;
}

template <class Shadow>
std::size_t RegionAllocator<Shadow>::requested_bytes(AppAddr begin) const {
  if (!owns(begin) || (begin.value & (kPageSize - 1)) != 0) return 0;
  const Handle h = index_.at(page_of(begin));
  if (h == kNoHandle || h == AreaIndex::kGone) return 0;
  const Record& r = records_[h];
  return r.page == page_of(begin) && r.state.load(std::memory_order_acquire) == RecordState::kLive ? r.area.requested
                                                                                                   : 0;
}

}  // namespace penumbra::region
