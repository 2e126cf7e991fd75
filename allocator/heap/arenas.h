// The address space that mimalloc allocates from: up to 64 regions of kind kArena, each twice the one before,
// and the shadow units in them.
//
//     kFirstArena  2x  4x ...       32 MiB aligned, all zero, never given back (memory ruling 18)
//
// A unit (32 KiB) of an arena starts with untouched shadow, which reads "accessible". The first block that overlaps
// it has it filled with "heap, never allocated", and the unit behind it as well, so that an overflow out of the
// newest block is seen (memory ruling 5). Farther units stay as they are: an access that far out is missed.
//
// Once a program has shown that it will use much, what is untouched of the arenas and of their shadow is asked for in
// huge pages: a program that allocates and frees goes through all of the quarantine's memory before it meets a page
// again, and each small page costs a fault.
//
// I1  a byte of a block handed out lies in a taken unit of an arena. The shadow of a taken unit, and of the one
//     behind it in the arena, is populated, and stays so.
//
// zone: nomalloc
#pragma once

#include "runtime/base/address.h"
#include "runtime/base/locks.h"
#include "shadow/encoding.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace penumbra::heap {

// mimalloc's segment size: arenas are aligned to it and made of it (MI_SEGMENT_SIZE in 2.0.9).
inline constexpr std::size_t kArenaAlignment = 32u << 20;
// Two segments: one that the first thread takes whole, one to go on with.
inline constexpr std::size_t kFirstArena = 2 * kArenaAlignment;
// Units taken before huge pages are asked for: 1.25 MiB, which lie scattered over two or three. Programs that only start
// and end take 15 to 31.
inline constexpr std::size_t kUnitsBeforeHuge = 40;
inline constexpr std::size_t kMaxArenas = 64;  // MI_MAX_ARENAS in 2.0.9

class Arenas {
 public:
  using Manage = bool (*)(void* start, std::size_t bytes, bool is_committed, bool is_large, bool is_zero,
                          int numa_node);

  // The span of regions is known, nothing is allocated yet. False when there is no memory for them.
  bool init(AppRange span, Manage manage);

  // Adds one arena, unless somebody did since the caller saw `seen` of them. False when no address space is
  // left.
  bool grow(std::size_t seen);

  std::size_t count() const { return count_.load(std::memory_order_acquire); }

  std::size_t bytes() const;

  bool contains(AppAddr a) const { return find(a) != nullptr; }

  // The arena that holds `a`, or an empty range.
  AppRange range_of(AppAddr a) const;

  // Takes the units that [begin, begin+bytes) overlaps. The range lies in one arena. False when there is no memory
  // for their shadow.
  [[nodiscard]] bool take(AppAddr begin, std::size_t bytes) {
    const std::size_t last = unit_of(begin + (bytes - 1));
    for (std::size_t unit = unit_of(begin); unit <= last; ++unit) {
      if (taken_[unit].load(std::memory_order_acquire)) [[likely]] {
        continue;
      }
      if (!take_slowly(unit)) return false;
    }
    return true;
  }

  std::size_t taken_units() const { return taken_units_.load(std::memory_order_relaxed); }

  void fork_prepare();
  void fork_done();
  // In a child whose parent did not prepare.
  void reset_locks();
  void validate() const;

 private:
  std::size_t unit_of(AppAddr a) const { return (a - span_.begin) / shadow::kUnitSize; }

  const AppRange* find(AppAddr a) const;
  bool take_slowly(std::size_t unit);
  void use_huge_pages();
  void advise_huge_locked(AppRange arena) const;
  bool is_untouched(AppAddr begin, std::size_t bytes) const;

  AppRange span_;
  Manage manage_ = nullptr;
  std::atomic<bool>* taken_ = nullptr;  // one per unit of the span
  std::atomic<std::size_t> taken_units_{0};
  std::atomic<std::size_t> count_{0};
  AppRange arenas_[kMaxArenas];  // [0, count_) are final
  Mutex grow_lock_;
  bool has_huge_pages_ = false;  // under grow_lock_
};

}  // namespace penumbra::heap
