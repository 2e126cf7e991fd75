// The shadow pages of one span: who uses each, who fills it, and when it goes back to the kernel.
//
// A unit is the 32 KiB of application memory that one page of shadow describes. Each unit has one state word:
//
//     63            32 31                  6    5        4        3      2..0
//     | generation    | count of takers     | waiters | pinned | queued | state |
//
//            take                finish                release (last)
//     empty -----> filling(1) ---------> ready(n) ------------------> dying
//       ^                                   ^                           |  |
//       |  end_flush, generation + 1        +------ take: rescue -------+  | begin_flush
//       +------------------------------- flushing <------------------------+
//
// U1  shadow bytes of an empty unit read 0 and take no memory; so a unit may be empty only while all of its
//     application memory is inaccessible, or inside a live sparse area (memory rulings 1 and 4).
// U2  a ready or dying unit's shadow page is wholly written: what nobody unpoisoned is poison. A rescue therefore
//     needs no refill.
// U3  queued says that the unit is on the dying queue, exactly once; a rescued unit stays there until the purger
//     meets it and drops the entry.
// U4  a waiter (for filling or flushing) holds no lock and no unfinished unit, so nobody waits for ever.
// U5  resident() = units that are not empty; zone_populated() is the same count for each 4 MiB zone.
//
// take() and release() take no lock and call the kernel only to fill several units at once or to wait. Nothing here
// runs in a signal handler except first_unpopulated() and the plain reads.
//
// The shadow bytes themselves lie in one run (the direct map, or memory that a test brings), or behind the paged map's
// table. There a fill publishes the unit's page, begin_flush takes it out of the table, and end_flush makes it free again
// (P4 of paged_map.h): what the kernel drops in between is the page that nobody is led to any more.
//
// zone: nomalloc
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"
#include "shadow/encoding.h"
#include "shadow/paged_map.h"
#include "shadow/unit_state.h"

namespace penumbra::shadow {

// One word, decoded.
struct UnitView {
  UnitState state;
  bool queued;
  bool pinned;
  std::uint32_t count;
  std::uint32_t generation;
};

class UnitMap {
 public:
  // Units per zone: a zone is what one allocator node owns at a time (4 MiB).
  static constexpr std::size_t kUnitsPerZone = 128;
  static constexpr std::size_t kZoneSize = kUnitsPerZone * kUnitSize;
  static constexpr std::size_t kZonesPerGroup = 1024;  // of a terabyte's 262,144

  // Answers the first byte at or behind `at` (inside the span) that a live area without populated shadow does not
  // make accessible: `at` itself where there is none. Signal-safe.
  using SparseEnd = AppAddr (*)(const void* cookie, AppAddr at);

  constexpr UnitMap() = default;
  UnitMap(const UnitMap&) = delete;
  UnitMap& operator=(const UnitMap&) = delete;

  // `span` is whole zones. `shadow` is where the shadow of span.begin lies: null for the map of this process, any writable
  // memory in tests that bring their own. Takes address space, no memory.
  os::Result init(AppRange span, ShadowAddr shadow, SparseEnd sparse_end, const void* cookie);
  void destroy();
  bool is_initialized() const { return words_ != nullptr; }

  // One more taker for every unit that [begin, begin+bytes) overlaps; the first taker fills it with `tag`. False
  // when the kernel had no memory for the shadow: then nothing is taken.
  [[nodiscard]] bool take(AppAddr begin, std::size_t bytes, ShadowTag tag);
  void release(AppAddr begin, std::size_t bytes);
  // take() for those who never release (arenas): a unit that is ready is left as it is. One load each when ready.
  [[nodiscard]] bool ensure_ready(AppAddr begin, std::size_t bytes, ShadowTag tag) {
    for (std::size_t u = unit_of(begin), last = unit_of(begin + (bytes - 1)); u <= last; ++u) {
      if (state_of(words_[u].load(std::memory_order_acquire)) == UnitState::kReady) continue;
      if (!take_units(u, u, tag)) return false;
    }
    return true;
  }

  // A sparse area takes over whole units (no other area overlaps them) as they are: empty ones stay empty, dying
  // ones are rescued and made accessible. The caller owns the range alone.
  void take_sparse(AppAddr begin, std::size_t bytes);
  // The sparse area was freed and its memory is inaccessible: what shadow its empty units got by hand
  // (__asan_poison_memory_region) goes back, and its populated ones are poisoned.
  void forbid_sparse(AppAddr begin, std::size_t bytes, ShadowTag tag);
  // Releases those of its units that are populated.
  void release_sparse(AppAddr begin, std::size_t bytes);

  // Keeps populated what can be made inaccessible by no other means: one count that belongs to the unit itself.
  // The caller holds a count on every unit of the range.
  void pin(AppAddr begin, std::size_t bytes);
  // Takes the pins of a range back, once its memory is inaccessible.
  void unpin(AppAddr begin, std::size_t bytes);

  // First byte of [begin, end) whose unit is not populated and which no live sparse area covers, or kNoBadByte.
  AppAddr first_unpopulated(AppAddr begin, AppAddr end) const;

  // Purger only, one at a time (the purge mutex). Moves dying units to flushing until at most `keep` are dying or
  // `max` ranges are full; `ranges` receives their shadow, neighbours merged. The memory of the units must be
  // inaccessible by now. Then exactly one of end_flush (the shadow is dropped) and abort_flush follows.
  std::size_t begin_flush(std::size_t keep, iovec* ranges, std::size_t max);
  void end_flush();
  void abort_flush();

  // One word a unit, for checks that look by themselves.
  const std::atomic<UnitWord>* words() const { return words_; }

  UnitView view(AppAddr a) const { return view_of(words_[unit_of(a)].load(std::memory_order_acquire)); }
  std::uint32_t zone_populated(std::size_t zone) const {
    return zone_populated_[zone].load(std::memory_order_relaxed);
  }
  // Statistics, in shadow pages. They may lag behind by one call.
  std::size_t resident() const { return resident_.load(std::memory_order_relaxed); }
  std::size_t dying() const { return dying_.load(std::memory_order_relaxed); }
  std::size_t pinned() const { return pinned_.load(std::memory_order_relaxed); }
  std::uint32_t fills_in_flight() const { return fills_.load(std::memory_order_acquire); }

  // After fork, in the child: fills and flushes that other threads were doing will never end by themselves. Filling
  // units become empty (their takers do not exist here), flushing ones dying again. Called by fork_child, and by
  // itself in a child that skipped the fork hooks, when it would wait.
  void repair_after_fork();

  // U3 and U5, derived anew from the words. Others may work meanwhile: each word is judged by itself, the sums and
  // the lists only if nothing changed between the first look and the last (which needs PENUMBRA_VALIDATE).
  void validate() const;

  // Writes the shadow of granules whose units the caller holds.
  void set(AppAddr begin, std::size_t granules, std::uint8_t value) {
    if (pages_ == nullptr) [[likely]] {
      raw_set(shadow_at(begin).ptr(), value, granules);
    } else {
      pages_->set(begin, granules, value);
    }
  }
  // What the shadow of `a` holds. Out of line: in a caller that is compiled with checks, the load would itself be looked
  // up in the shadow of the shadow, which is not there.
  std::uint8_t shadow_byte(AppAddr a) const;
  // The shadow of `granules` granules will be written soon. A hint, for shadow in one run.
  void expect(AppAddr begin, std::size_t granules) const {
    if (pages_ != nullptr) return;
    const std::uint8_t* const shadow = shadow_at(begin).ptr();
    for (std::size_t i = 0; i < granules; i += 64) expect_write(shadow + i);
  }
  const AppRange& span() const { return span_; }

 private:
  using Word = UnitWord;

  static constexpr Word kStateMask = kUnitStateMask;
  static constexpr Word kQueued = 8;
  static constexpr Word kPinned = 16;
  static constexpr Word kWaiters = 32;
  static constexpr Word kOne = 64;  // one taker
  static constexpr Word kCountMask = 0xffffffc0;
  static constexpr Word kGeneration = Word{1} << 32;
  static constexpr std::uint32_t kEnd = ~std::uint32_t{0};  // end of a list of units

  static constexpr UnitState state_of(Word w) { return unit_state(w); }
  static constexpr Word with_state(Word w, UnitState s) { return (w & ~kStateMask) | static_cast<Word>(s); }
  static constexpr UnitView view_of(Word w) {
    return {state_of(w), (w & kQueued) != 0, (w & kPinned) != 0, static_cast<std::uint32_t>(w & kCountMask) >> 6,
            static_cast<std::uint32_t>(w >> 32)};
  }

  std::size_t unit_of(AppAddr a) const { return (a.value - span_.begin.value) / kUnitSize; }
  AppAddr address_of(std::size_t unit) const { return span_.begin + unit * kUnitSize; }
  ShadowAddr shadow_at(AppAddr a) const { return shadow_ + ((a.value - span_.begin.value) >> kGranuleShift); }
  // Of a unit that is not empty.
  std::uint8_t* page_of(std::size_t unit) const {
    return pages_ == nullptr ? (shadow_ + unit * kPageSize).ptr() : pages_->page_of(address_of(unit));
  }

  // Brackets every change of words, lists and counters, so that validate() knows whether it saw them at rest.
  // Costs two shared increments, so only builds that validate count.
  class Change {
   public:
#if PENUMBRA_VALIDATE
    explicit Change(UnitMap* map) : map_(map) {
      map_->begun_.fetch_add(1);
    }
    ~Change() {
      map_->ended_.fetch_add(1);
    }

   private:
    UnitMap* map_;
#else
    explicit Change(UnitMap*) {}
    ~Change() {}
#endif
  };
  // What validate() counts up.
  struct Census {
    std::size_t resident = 0;
    std::size_t dying = 0;
    std::size_t pinned = 0;
    std::size_t queued = 0;
    bool zones_agree = true;
  };
  Census take_census() const;
  std::size_t listed_from(std::uint32_t first, std::size_t limit) const;

  bool take_units(std::size_t first, std::size_t last, ShadowTag tag);
  void release_units(std::size_t first, std::size_t last);
  void release_one(std::size_t unit);
  void clear_page(std::size_t unit);
  bool refill_flushed(std::size_t unit);
  Word repaired(std::size_t unit, Word w);
  bool fill_bytes(std::size_t first, std::size_t count, std::uint8_t value);
  bool fill_run(std::size_t first, std::size_t count, ShadowTag tag);
  void settle(std::size_t unit, UnitState state, Word count);
  void wait_while_busy(std::size_t unit);
  void push_dying(std::size_t unit);
  void adopt_pushed();
  void count_populated(std::size_t unit, int by);
  bool repair_if_orphaned();
  // visit(zone) for each with a populated unit.
  template <class Visit>
  void for_populated_zones(Visit visit) const {
    const std::size_t zones = units_ / kUnitsPerZone;
    for (std::size_t first = 0; first < zones; first += kZonesPerGroup) {
      if (group_used_[first / kZonesPerGroup].load(std::memory_order_relaxed) == 0) continue;
      for (std::size_t zone = first; zone < zones && zone < first + kZonesPerGroup; ++zone) {
        if (zone_populated(zone) != 0) visit(zone);
      }
    }
  }
  template <class Visit>
  void for_populated(AppAddr begin, std::size_t bytes, Visit visit);

  AppRange span_;
  ShadowAddr shadow_;          // of span_.begin, where it is one run
  PagedMap* pages_ = nullptr;  // where it is not
  std::size_t units_ = 0;
  std::size_t table_bytes_ = 0;
  std::atomic<Word>* words_ = nullptr;
  std::uint32_t* next_ = nullptr;  // links of the dying queue and of the flushing list
  std::atomic<std::uint32_t>* zone_populated_ = nullptr;
  // 1 where any unit of a group of zones was ever populated: who goes through all of the map, as every child of fork does,
  // touches only what was used.
  std::atomic<std::uint8_t>* group_used_ = nullptr;
  // Reads 1 in the process that made it and 0 in a child that has not repaired itself (MADV_WIPEONFORK).
  std::atomic<std::uint32_t>* not_orphaned_ = nullptr;
  SparseEnd sparse_end_ = nullptr;
  const void* cookie_ = nullptr;

  // Newly dead units, pushed by anybody; the purger takes all of them at once, so there is no ABA.
  alignas(64) std::atomic<std::uint32_t> pushed_{kEnd};
  std::atomic<std::uint32_t> fills_{0};
  std::atomic<std::size_t> resident_{0};
  std::atomic<std::size_t> dying_{0};
  std::atomic<std::size_t> pinned_{0};
#if PENUMBRA_VALIDATE
  std::atomic<std::uint64_t> begun_{0};
  std::atomic<std::uint64_t> ended_{0};
#endif
  // Purger only: queued units, oldest first, and the units of the flush under way.
  alignas(64) std::uint32_t oldest_ = kEnd;
  std::uint32_t newest_ = kEnd;
  std::uint32_t flushing_ = kEnd;
};

}  // namespace penumbra::shadow
