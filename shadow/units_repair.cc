// The unit map in a child of fork, and held to its invariants: both read all words anew.
//
// zone: nomalloc
#include <sys/mman.h>

#include "runtime/base/check.h"
#include "shadow/units.h"

namespace penumbra::shadow {

// What a fill left half done reads 0 again.
void UnitMap::clear_page(std::size_t unit) {
  if (pages_ != nullptr) {
    pages_->clear(address_of(unit), address_of(unit) + kUnitSize);
  } else {
    os::advise(AppAddr(page_of(unit)), kPageSize, MADV_DONTNEED).ignore();
  }
}

// Valid poison for a unit whose flush will not end by itself. False where there is no page for it: its memory is
// inaccessible, so it may be empty (U1).
bool UnitMap::refill_flushed(std::size_t unit) {
  const auto tag = static_cast<std::uint8_t>(ShadowTag::kRegionInvalid);
  if (pages_ != nullptr) return pages_->fill(address_of(unit), tag);
  raw_set(page_of(unit), tag, kPageSize);
  return true;
}

// Before a child's first own fill or flush, so that what is under way is never its own.
bool UnitMap::repair_if_orphaned() {
  if (not_orphaned_->load(std::memory_order_acquire) != 0) [[likely]]
    return false;
  repair_after_fork();
#if PENUMBRA_VALIDATE
  ended_.fetch_sub(1);  // the caller's own change goes on
#endif
  return true;
}

// Writes only what changes: in a child of a process that stood still around fork, next to nothing.
void UnitMap::repair_after_fork() {
  // Lists and counters may have been caught in the middle of a change; the words say everything.
#if PENUMBRA_VALIDATE
  ended_.store(begun_.load());
#endif
  flushing_ = oldest_ = newest_ = kEnd;
  pushed_.store(kEnd, std::memory_order_relaxed);
  fills_.store(0, std::memory_order_relaxed);
  if (pages_ != nullptr) pages_->repair_after_fork();
  std::size_t resident = 0;
  std::size_t dying = 0;
  for_populated_zones([&](std::size_t zone) {
    std::uint32_t populated = 0;
    for (std::size_t u = zone * kUnitsPerZone; u < (zone + 1) * kUnitsPerZone; ++u) {
      const Word before = words_[u].load(std::memory_order_relaxed);
      const Word w = repaired(u, before);
      populated += state_of(w) != UnitState::kEmpty;
      if (state_of(w) == UnitState::kDying) {
        ++dying;
        push_dying(u);
      }
      if (w != before) words_[u].store(w, std::memory_order_release);
    }
    if (zone_populated(zone) != populated) zone_populated_[zone].store(populated, std::memory_order_relaxed);
    resident += populated;
  });
  resident_.store(resident, std::memory_order_relaxed);
  dying_.store(dying, std::memory_order_relaxed);
  not_orphaned_->store(1, std::memory_order_release);
}

// What a unit's word becomes where nobody else is.
UnitMap::Word UnitMap::repaired(std::size_t unit, Word w) {
  w &= ~(kWaiters | kQueued);
  switch (state_of(w)) {
    case UnitState::kFilling:  // its taker does not exist here
      clear_page(unit);
      return with_state(w & ~kCountMask, UnitState::kEmpty);
    case UnitState::kFlushing:
      if (!refill_flushed(unit)) return with_state(w, UnitState::kEmpty);
      return with_state(w, UnitState::kDying) | kQueued;
    case UnitState::kDying: return w | kQueued;
    default: return w;
  }
}

UnitMap::Census UnitMap::take_census() const {
  Census census;
  for_populated_zones([&](std::size_t zone) {
    const std::uint32_t expected = zone_populated(zone);
    std::uint32_t populated = 0;
    for (std::size_t u = zone * kUnitsPerZone; u < (zone + 1) * kUnitsPerZone; ++u) {
      const UnitView unit = view_of(words_[u].load(std::memory_order_relaxed));
      populated += unit.state != UnitState::kEmpty;
      census.dying += unit.state == UnitState::kDying;
      census.pinned += unit.pinned;
      census.queued += unit.queued;
      PENUMBRA_CHECK(unit.state != UnitState::kReady || unit.count > 0);
      PENUMBRA_CHECK(unit.state != UnitState::kDying || (unit.count == 0 && unit.queued));  // U3
      PENUMBRA_CHECK(unit.state != UnitState::kEmpty || (unit.count == 0 && !unit.pinned));
    }
    census.zones_agree &= populated == expected;
    census.resident += populated;
  });
  return census;
}

// Length of a list of queued units; one more than `limit` if it is longer (or has a unit that is not queued).
std::size_t UnitMap::listed_from(std::uint32_t first, std::size_t limit) const {
  std::size_t listed = 0;
  for (std::uint32_t u = first; u != kEnd && listed <= limit; u = next_[u]) {
    if ((words_[u].load(std::memory_order_relaxed) & kQueued) == 0) return limit + 1;
    ++listed;
  }
  return listed;
}

void UnitMap::validate() const {
#if PENUMBRA_VALIDATE
  // Read in this order, what has ended before what has begun: equal numbers mean that nothing began in
  // between.
  const std::uint64_t ended = ended_.load();
  const Census census = take_census();
  const std::size_t queue = listed_from(oldest_, census.queued);
  const std::size_t pushed = listed_from(pushed_.load(std::memory_order_acquire), census.queued);
  const bool resident_agrees = census.resident == resident();
  const bool dying_agrees = census.dying == dying();
  const bool pinned_agrees = census.pinned == pinned();
  if (begun_.load() != ended) return;
  PENUMBRA_CHECK(census.zones_agree && resident_agrees);  // U5
  PENUMBRA_CHECK(dying_agrees && pinned_agrees);
  PENUMBRA_CHECK_OP(queue + pushed, ==, census.queued);  // U3: each is on one of the two lists, once
#else
  take_census();
#endif
}

}  // namespace penumbra::shadow
