#include "shadow/units.h"

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>

#include "runtime/base/check.h"
#include "shadow/address_map.h"
#include "shadow/check.h"

namespace penumbra::shadow {
namespace {

// Empty units filled by one call: 64 KiB of shadow, above which the call's own cost no longer shows.
constexpr std::size_t kFillRun = 16;
// Pauses before a waiter sleeps; a fill takes about 2 us, a pause about 40 cycles.
constexpr int kSpins = 128;

std::uint32_t low_half(std::uint64_t word) {
  return static_cast<std::uint32_t>(word);
}

// Little-endian: the half that holds state, flags and count, which is what waiters watch.
std::atomic<std::uint32_t>* futex_of(std::atomic<std::uint64_t>* word) {
  return reinterpret_cast<std::atomic<std::uint32_t>*>(word);
}

}  // namespace

os::Result UnitMap::init(AppRange span, ShadowAddr shadow, SparseEnd sparse_end, const void* cookie) {
  PENUMBRA_CHECK((span.begin.value & (kUnitSize - 1)) == 0 && span.bytes() % kZoneSize == 0);
  PENUMBRA_CHECK((shadow.value & (kPageSize - 1)) == 0);
  span_ = span;
  pages_ = shadow.is_null() && is_paged() ? &internal::g_paged_map : nullptr;
  shadow_ = shadow.is_null() ? shadow_of(span.begin) : shadow;
  units_ = span.bytes() / kUnitSize;
  PENUMBRA_CHECK(units_ < kEnd);
  sparse_end_ = sparse_end;
  cookie_ = cookie;
  const std::size_t zones = units_ / kUnitsPerZone;
  const std::size_t words_bytes = round_up(units_ * sizeof(Word), kPageSize);
  const std::size_t next_bytes = round_up(units_ * sizeof(std::uint32_t), kPageSize);
  const std::size_t zones_bytes = round_up(zones * sizeof(std::uint32_t), kPageSize);
  table_bytes_ = kPageSize + words_bytes + next_bytes + zones_bytes + round_up(zones / kZonesPerGroup + 1, kPageSize);
  const os::Result table = os::map_noreserve(table_bytes_);
  if (!table.ok()) return table;
  AppAddr at = table.address();
  not_orphaned_ = at.ptr<std::atomic<std::uint32_t>>();
  words_ = (at = at + kPageSize).ptr<std::atomic<Word>>();
  next_ = (at = at + words_bytes).ptr<std::uint32_t>();
  zone_populated_ = (at = at + next_bytes).ptr<std::atomic<std::uint32_t>>();
  group_used_ = (at + zones_bytes).ptr<std::atomic<std::uint8_t>>();
  // Without it (Linux < 4.14) a child that skipped the fork hooks is not recognised; nothing else changes.
  os::advise(AppAddr(not_orphaned_), kPageSize, MADV_WIPEONFORK).ignore();
  not_orphaned_->store(1, std::memory_order_relaxed);
  return os::Result(0);
}

void UnitMap::destroy() {
  if (words_ == nullptr) return;
  os::unmap(AppAddr(not_orphaned_), table_bytes_).ignore();
  words_ = nullptr;
}

void UnitMap::count_populated(std::size_t unit, int by) {
  const auto delta = static_cast<std::uint32_t>(by);
  const std::size_t zone = unit / kUnitsPerZone;
  std::atomic<std::uint8_t>& is_used = group_used_[zone / kZonesPerGroup];
  if (is_used.load(std::memory_order_relaxed) == 0) is_used.store(1, std::memory_order_relaxed);
  zone_populated_[zone].fetch_add(delta, std::memory_order_relaxed);
  resident_.fetch_add(static_cast<std::size_t>(by), std::memory_order_relaxed);
}

bool UnitMap::take(AppAddr begin, std::size_t bytes, ShadowTag tag) {
  return take_units(unit_of(begin), unit_of(begin + (bytes - 1)), tag);
}

bool UnitMap::take_units(std::size_t first, std::size_t last, ShadowTag tag) {
  const Change change(this);
  std::size_t run = first;  // [run, unit) are filling, by us
  std::size_t unit = first;
  while (unit <= last) {
    Word w = words_[unit].load(std::memory_order_acquire);
    const UnitState state = state_of(w);
    if (state == UnitState::kEmpty && unit - run < kFillRun) {
      if (run == unit) repair_if_orphaned();
      // Counted before the claim, so that fork never sees a claim it does not wait for.
      if (run == unit) fills_.fetch_add(1, std::memory_order_acq_rel);
      if (words_[unit].compare_exchange_strong(w, with_state(w, UnitState::kFilling) + kOne,
                                               std::memory_order_acq_rel, std::memory_order_relaxed)) {
        count_populated(unit, +1);
        ++unit;
      } else if (run == unit) {
        fills_.fetch_sub(1, std::memory_order_acq_rel);
      }
      continue;
    }
    if (run < unit) {
      const std::size_t count = unit - run;
      if (!fill_run(run, count, tag)) {
        if (run > first) release_units(first, run - 1);
        return false;
      }
      run = unit;
      continue;
    }
    if (state == UnitState::kReady) {
      if (!words_[unit].compare_exchange_weak(w, w + kOne, std::memory_order_acquire, std::memory_order_relaxed)) {
        continue;
      }
    } else if (state == UnitState::kDying) {
      // The contents are valid poison (U2). The queue entry stays; the purger drops it.
      if (!words_[unit].compare_exchange_weak(w, with_state(w, UnitState::kReady) + kOne, std::memory_order_acquire,
                                              std::memory_order_relaxed)) {
        continue;
      }
      dying_.fetch_sub(1, std::memory_order_relaxed);
    } else {
      wait_while_busy(unit);
      continue;
    }
    run = ++unit;
  }
  if (run < unit && !fill_run(run, unit - run, tag)) {
    if (run > first) release_units(first, run - 1);
    return false;
  }
  return true;
}

// Ends a fill (or its failure): the state changes, the flags that others may set meanwhile stay, sleepers wake.
void UnitMap::settle(std::size_t unit, UnitState state, Word count) {
  Word w = words_[unit].load(std::memory_order_relaxed);
  Word next;
  do {
    next = with_state(w & ~(kWaiters | kCountMask), state) | count;
  } while (!words_[unit].compare_exchange_weak(w, next, std::memory_order_release, std::memory_order_relaxed));
  if ((w & kWaiters) != 0) os::futex_wake(futex_of(&words_[unit]), ~0u >> 1).ignore();
}

// False where there is no memory: then their shadow is as it was before.
bool UnitMap::fill_bytes(std::size_t first, std::size_t count, std::uint8_t value) {
  if (pages_ != nullptr) [[unlikely]] {
    for (std::size_t u = first; u < first + count; ++u) {
      if (pages_->fill(address_of(u), value)) continue;
      // Their pages stay in the table, empty, for the next taker.
      pages_->clear(address_of(first), address_of(u));
      return false;
    }
    return true;
  }
  if (count > 1) {
    // One call instead of `count` faults, and the only place where the kernel can say no without killing us.
    // EINVAL: older than 5.14, which knows only faults.
    const os::Result populated = os::advise(AppAddr(page_of(first)), count * kPageSize, MADV_POPULATE_WRITE);
    if (!populated.ok() && populated.error() != EINVAL) {
      // Part of the run may have been populated; dropped while nobody else can fill it (U1).
      os::advise(AppAddr(page_of(first)), count * kPageSize, MADV_DONTNEED).ignore();
      return false;
    }
  }
  raw_set(page_of(first), value, count * kPageSize);
  return true;
}

bool UnitMap::fill_run(std::size_t first, std::size_t count, ShadowTag tag) {
  const bool ok = fill_bytes(first, count, static_cast<std::uint8_t>(tag));
  for (std::size_t u = first; u < first + count; ++u) {
    if (!ok) count_populated(u, -1);
    settle(u, ok ? UnitState::kReady : UnitState::kEmpty, ok ? kOne : 0);
  }
  fills_.fetch_sub(1, std::memory_order_acq_rel);
  return ok;
}

void UnitMap::wait_while_busy(std::size_t unit) {
  for (int spin = 0;; ++spin) {
    Word w = words_[unit].load(std::memory_order_acquire);
    const UnitState state = state_of(w);
    if (state != UnitState::kFilling && state != UnitState::kFlushing) return;
    if (repair_if_orphaned()) continue;
    if (spin < kSpins) {
      __builtin_ia32_pause();
      continue;
    }
    if ((w & kWaiters) == 0 && !words_[unit].compare_exchange_weak(w, w | kWaiters, std::memory_order_relaxed)) {
      continue;
    }
    os::futex_wait(futex_of(&words_[unit]), low_half(w | kWaiters)).ignore();
  }
}

void UnitMap::release(AppAddr begin, std::size_t bytes) {
  release_units(unit_of(begin), unit_of(begin + (bytes - 1)));
}

void UnitMap::release_units(std::size_t first, std::size_t last) {
  for (std::size_t u = first; u <= last; ++u) release_one(u);
}

void UnitMap::release_one(std::size_t unit) {
  const Change change(this);
  Word w = words_[unit].load(std::memory_order_relaxed);
  Word next;
  do {
    PENUMBRA_CHECK(state_of(w) == UnitState::kReady && (w & kCountMask) != 0);
    next = w - kOne;
    if ((next & kCountMask) == 0) next = with_state(next, UnitState::kDying) | kQueued;
    // acq_rel: whatever other takers wrote comes before our making it die, ours before another's last release.
  } while (!words_[unit].compare_exchange_weak(w, next, std::memory_order_acq_rel, std::memory_order_relaxed));
  if ((next & kCountMask) == 0) {
    dying_.fetch_add(1, std::memory_order_relaxed);
    if ((w & kQueued) == 0) push_dying(unit);
  }
}

void UnitMap::push_dying(std::size_t unit) {
  std::uint32_t head = pushed_.load(std::memory_order_relaxed);
  do {
    next_[unit] = head;
  } while (!pushed_.compare_exchange_weak(head, static_cast<std::uint32_t>(unit), std::memory_order_release,
                                          std::memory_order_relaxed));
}

std::uint8_t UnitMap::shadow_byte(AppAddr a) const {
  return pages_ == nullptr ? *shadow_at(a).ptr<const volatile std::uint8_t>() : pages_->load(a);
}

// Calls visit(unit) for units of whole-unit ranges that are not empty. Zones without any cost one load.
template <class Visit>
void UnitMap::for_populated(AppAddr begin, std::size_t bytes, Visit visit) {
  const std::size_t end = unit_of(begin + bytes);
  for (std::size_t u = unit_of(begin); u < end;) {
    if (u % kUnitsPerZone == 0 && u + kUnitsPerZone <= end && zone_populated(u / kUnitsPerZone) == 0) {
      u += kUnitsPerZone;
      continue;
    }
    if (state_of(words_[u].load(std::memory_order_acquire)) != UnitState::kEmpty) visit(u);
    ++u;
  }
}

void UnitMap::take_sparse(AppAddr begin, std::size_t bytes) {
  const Change change(this);
  if (bytes == 0) return;
  for_populated(begin, bytes, [this](std::size_t u) {
    for (;;) {
      Word w = words_[u].load(std::memory_order_acquire);
      const UnitState state = state_of(w);
      if (state == UnitState::kEmpty) return;
      if (state != UnitState::kDying) {
        // Nobody else may use the unit; only the purger can be at it.
        PENUMBRA_CHECK(state == UnitState::kFlushing);
        wait_while_busy(u);
      } else if (words_[u].compare_exchange_strong(w, with_state(w, UnitState::kReady) + kOne,
                                                   std::memory_order_acquire, std::memory_order_relaxed)) {
        dying_.fetch_sub(1, std::memory_order_relaxed);
        raw_set(page_of(u), 0, kPageSize);
        return;
      }
    }
  });
}

void UnitMap::forbid_sparse(AppAddr begin, std::size_t bytes, ShadowTag tag) {
  if (bytes == 0) return;
  if (pages_ != nullptr) {
    pages_->clear(begin, begin + bytes);
  } else {
    os::advise(AppAddr(shadow_at(begin).value), bytes >> kGranuleShift, MADV_DONTNEED).ignore();
  }
  for_populated(begin, bytes, [&](std::size_t u) { raw_set(page_of(u), static_cast<int>(tag), kPageSize); });
}

void UnitMap::release_sparse(AppAddr begin, std::size_t bytes) {
  if (bytes == 0) return;
  for_populated(begin, bytes, [this](std::size_t u) { release_one(u); });
}

void UnitMap::pin(AppAddr begin, std::size_t bytes) {
  const Change change(this);
  for (std::size_t u = unit_of(begin), last = unit_of(begin + (bytes - 1)); u <= last; ++u) {
    Word w = words_[u].load(std::memory_order_relaxed);
    while ((w & kPinned) == 0) {
      PENUMBRA_CHECK(state_of(w) == UnitState::kReady);
      if (words_[u].compare_exchange_weak(w, (w | kPinned) + kOne, std::memory_order_acq_rel)) {
        pinned_.fetch_add(1, std::memory_order_relaxed);
        break;
      }
    }
  }
}

void UnitMap::unpin(AppAddr begin, std::size_t bytes) {
  const Change change(this);
  for (std::size_t u = unit_of(begin), last = unit_of(begin + (bytes - 1)); u <= last; ++u) {
    Word w = words_[u].load(std::memory_order_relaxed);
    while ((w & kPinned) != 0) {
      if (words_[u].compare_exchange_weak(w, w & ~kPinned, std::memory_order_acq_rel)) {
        pinned_.fetch_sub(1, std::memory_order_relaxed);
        release_one(u);
        break;
      }
    }
  }
}

AppAddr UnitMap::first_unpopulated(AppAddr begin, AppAddr end) const {
  AppAddr at = begin;
  while (at < end) {
    const UnitState state = state_of(words_[unit_of(at)].load(std::memory_order_acquire));
    if (is_populated(state)) [[likely]] {
      at = AppAddr(round_down(at.value, kUnitSize)) + kUnitSize;
      continue;
    }
    const AppAddr sparse_end = sparse_end_ == nullptr ? at : sparse_end_(cookie_, at);
    if (sparse_end == at) return at;
    at = sparse_end;
  }
  return kNoBadByte;
}

// Moves what was pushed since the last time behind the purger's own list, oldest first.
void UnitMap::adopt_pushed() {
  std::uint32_t unit = pushed_.exchange(kEnd, std::memory_order_acquire);
  if (unit == kEnd) return;
  const std::uint32_t last = unit;
  std::uint32_t reversed = kEnd;
  while (unit != kEnd) {
    const std::uint32_t next = next_[unit];
    next_[unit] = reversed;
    reversed = unit;
    unit = next;
  }
  if (oldest_ == kEnd) {
    oldest_ = reversed;
  } else {
    next_[newest_] = reversed;
  }
  newest_ = last;
}

std::size_t UnitMap::begin_flush(std::size_t keep, iovec* ranges, std::size_t max) {
  const Change change(this);
  repair_if_orphaned();
  PENUMBRA_CHECK(flushing_ == kEnd);
  adopt_pushed();
  std::size_t count = 0;
  while (oldest_ != kEnd && dying() > keep) {
    const std::uint32_t unit = oldest_;
    std::uint8_t* const page = page_of(unit);
    iovec* const last = count == 0 ? nullptr : &ranges[count - 1];
    const bool joins_behind = last != nullptr && static_cast<std::uint8_t*>(last->iov_base) + last->iov_len == page;
    const bool joins_before = last != nullptr && page + kPageSize == last->iov_base;
    if (count == max && !joins_behind && !joins_before) break;
    oldest_ = next_[unit];
    if (oldest_ == kEnd) newest_ = kEnd;
    Word w = words_[unit].load(std::memory_order_relaxed);
    bool flush;
    do {
      flush = state_of(w) == UnitState::kDying;
    } while (!words_[unit].compare_exchange_weak(w, (flush ? with_state(w, UnitState::kFlushing) : w) & ~kQueued,
                                                 std::memory_order_acq_rel, std::memory_order_relaxed));
    if (!flush) continue;  // rescued meanwhile
    if (pages_ != nullptr) pages_->detach(address_of(unit));
    dying_.fetch_sub(1, std::memory_order_relaxed);
    next_[unit] = flushing_;
    flushing_ = unit;
    if (joins_behind) {
      last->iov_len += kPageSize;
    } else if (joins_before) {
      last->iov_base = page;
      last->iov_len += kPageSize;
    } else {
      ranges[count++] = {page, kPageSize};
    }
  }
  return count;
}

void UnitMap::end_flush() {
  const Change change(this);
  if (pages_ != nullptr) pages_->flush();
  while (flushing_ != kEnd) {
    const std::uint32_t unit = flushing_;
    flushing_ = next_[unit];
    count_populated(unit, -1);
    // Plain read-modify-write by one writer, except that waiters add their flag.
    Word w = words_[unit].load(std::memory_order_relaxed);
    while (!words_[unit].compare_exchange_weak(w, with_state(w & ~kWaiters, UnitState::kEmpty) + kGeneration,
                                               std::memory_order_release, std::memory_order_relaxed)) {
    }
    if ((w & kWaiters) != 0) os::futex_wake(futex_of(&words_[unit]), ~0u >> 1).ignore();
  }
}

void UnitMap::abort_flush() {
  // Pages that the table does not name any more go back to their pool with or without memory.
  if (pages_ != nullptr) return end_flush();
  const Change change(this);
  while (flushing_ != kEnd) {
    const std::uint32_t unit = flushing_;
    flushing_ = next_[unit];
    // The kernel may have dropped it before it said no; only a whole page of poison may be rescued (U2).
    raw_set(page_of(unit), static_cast<int>(ShadowTag::kRegionInvalid), kPageSize);
    next_[unit] = kEnd;
    if (oldest_ == kEnd) {
      oldest_ = unit;
    } else {
      next_[newest_] = unit;
    }
    newest_ = unit;
    dying_.fetch_add(1, std::memory_order_relaxed);
    Word w = words_[unit].load(std::memory_order_relaxed);
    while (!words_[unit].compare_exchange_weak(w, with_state(w & ~kWaiters, UnitState::kDying) | kQueued,
                                               std::memory_order_release, std::memory_order_relaxed)) {
    }
    if ((w & kWaiters) != 0) os::futex_wake(futex_of(&words_[unit]), ~0u >> 1).ignore();
  }
}

}  // namespace penumbra::shadow
