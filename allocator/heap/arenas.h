// The address space that mimalloc allocates from: up to 64 regions of kind kArena, each twice the one before, and
// the shadow units in them.
//
//     kFirstArena  2x  4x ...       32 MiB aligned, all zero, never given back (memory ruling 18)
//
// A unit (32 KiB) of an arena starts with untouched shadow, which reads "accessible". The first block that overlaps
// it fills it with "heap, never allocated", and the unit behind it as well, so that an overflow out of the newest
// block is seen (memory ruling 5). Farther units stay as they are: an access that far out is missed.
//
//     kUntouched -> kFilled (it lies behind a taken unit) -> kTaken (a block overlaps it)
//
// I1  a byte of a block handed out lies in a taken unit of an arena, and the unit behind a taken one is filled.
// I2  a unit is filled once, under the fill lock, and never goes back.
//
// zone: nomalloc
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"
#include "runtime/base/locks.h"
#include "shadow/encoding.h"

namespace penumbra::heap {

// mimalloc's segment size: arenas are aligned to it and made of it (MI_SEGMENT_SIZE in 2.0.9).
inline constexpr std::size_t kArenaAlignment = 32u << 20;
// Two segments: one that the first thread takes whole, one to go on with.
inline constexpr std::size_t kFirstArena = 2 * kArenaAlignment;
inline constexpr std::size_t kMaxArenas = 64;  // MI_MAX_ARENAS in 2.0.9

class Arenas {
 public:
  using Manage = bool (*)(void* start, std::size_t bytes, bool is_committed, bool is_large, bool is_zero, int numa_node);

  // The span of regions is known, nothing is allocated yet. False when the unit states cannot be had.
  bool init(AppRange span, Manage manage);

  // Adds one arena, unless somebody did since the caller saw `seen` of them. False when no address space is left.
  bool grow(std::size_t seen);
  std::size_t count() const { return count_.load(std::memory_order_acquire); }
  std::size_t bytes() const;
  bool contains(AppAddr a) const { return find(a) != nullptr; }
  // The arena that holds `a`, or an empty range.
  AppRange range_of(AppAddr a) const;

  // Takes the units that [begin, begin+bytes) overlaps. The range lies in one arena.
  void take(AppAddr begin, std::size_t bytes) {
    const std::size_t last = unit_of(begin + (bytes - 1));
    for (std::size_t unit = unit_of(begin); unit <= last; ++unit) {
      if (units_[unit].load(std::memory_order_acquire) != kTaken) [[unlikely]] {
        take_slowly(unit);
      }
    }
  }
  bool is_filled(AppAddr a) const { return units_[unit_of(a)].load(std::memory_order_acquire) != kUntouched; }
  std::size_t filled_units() const { return filled_.load(std::memory_order_relaxed); }

  void fork_prepare();
  void fork_done();
  // In a child whose parent did not prepare.
  void reset_locks();
  void validate() const;

 private:
  enum UnitState : std::uint8_t { kUntouched, kFilled, kTaken };

  std::size_t unit_of(AppAddr a) const { return (a - span_.begin) / shadow::kUnitSize; }
  const AppRange* find(AppAddr a) const;
  void take_slowly(std::size_t unit);
  void fill_locked(std::size_t unit);

  AppRange span_;
  Manage manage_ = nullptr;
  std::atomic<UnitState>* units_ = nullptr;  // one per unit of the span
  std::atomic<std::size_t> filled_{0};
  std::atomic<std::size_t> count_{0};
  AppRange arenas_[kMaxArenas];  // [0, count_) are final
  Mutex grow_lock_;
  Mutex fill_lock_;
};

}  // namespace penumbra::heap
