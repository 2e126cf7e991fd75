// What an allocator does with shadow: the one parameter of RegionAllocator, chosen at compile time.
//
//     NoShadow     nothing; the floor that the benchmarks compare with
//     EarlyShadow  nothing either, but what checks read is the zero page under untouched shadow: KASAN without
//                  KASAN_VMALLOC, where all of vmalloc's shadow is one shared page
//     LazyShadow   shadow pages populated with the areas, shared between neighbours, taken back exactly
//
// All three have the same members; the empty ones vanish. Shadow is written by UnitMap alone, never by a store here:
// the checked benchmark compiles allocators with checks, and shadow has no shadow (the kernel's mm/kasan is apart, too).
//
// zone: nomalloc
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>

#include "shadow/units.h"

namespace penumbra::region {

struct NoShadow {
  static constexpr bool kPopulates = false;

  os::Result init(AppRange, ShadowAddr, shadow::UnitMap::SparseEnd, const void*) { return os::Result(0); }
  void destroy() {}
  bool take(AppAddr, std::size_t) { return true; }
  void release(AppAddr, std::size_t) {}
  void take_sparse(AppAddr, std::size_t) {}
  void forbid_sparse(AppAddr, std::size_t) {}
  void release_sparse(AppAddr, std::size_t) {}
  void pin(AppAddr, std::size_t) {}
  void unpin(AppAddr, std::size_t) {}
  void allow(AppAddr, std::size_t, std::size_t) {}
  void guard(AppAddr, std::size_t) {}
  void forbid(AppAddr, std::size_t) {}
  void expect(AppAddr, std::size_t) {}
  void poison(AppAddr, std::size_t, shadow::ShadowTag) {}
  void unpoison(AppAddr, std::size_t) {}
  void resize(AppAddr, std::size_t, std::size_t) {}
  std::size_t begin_flush(std::size_t, iovec*, std::size_t) { return 0; }
  void end_flush(bool) {}
  std::size_t resident() const { return 0; }
  std::size_t dying() const { return 0; }
  std::size_t pinned() const { return 0; }
  std::uint32_t fills_in_flight() const { return 0; }
  void repair_after_fork() {}
};

struct EarlyShadow : NoShadow {};

class LazyShadow {
 public:
  static constexpr bool kPopulates = true;

  os::Result init(AppRange span, ShadowAddr shadow, shadow::UnitMap::SparseEnd sparse_end, const void* cookie) {
    return units_.init(span, shadow, sparse_end, cookie);
  }
  void destroy() { units_.destroy(); }

  // Counts on the units of a range; false when there is no memory for their shadow.
  bool take(AppAddr begin, std::size_t bytes) { return units_.take(begin, bytes, shadow::ShadowTag::kRegionInvalid); }
  void release(AppAddr begin, std::size_t bytes) { units_.release(begin, bytes); }
  void take_sparse(AppAddr begin, std::size_t bytes) { units_.take_sparse(begin, bytes); }
  void forbid_sparse(AppAddr begin, std::size_t bytes) {
    units_.forbid_sparse(begin, bytes, shadow::ShadowTag::kRegionFreed);
  }
  void release_sparse(AppAddr begin, std::size_t bytes) { units_.release_sparse(begin, bytes); }
  void pin(AppAddr begin, std::size_t bytes) { units_.pin(begin, bytes); }
  void unpin(AppAddr begin, std::size_t bytes) { units_.unpin(begin, bytes); }

  // The first `requested` of `total` bytes (whole pages) become accessible, the rest a tail.
  void allow(AppAddr begin, std::size_t requested, std::size_t total) {
    const std::size_t whole = requested >> shadow::kGranuleShift;
    const std::size_t all = total >> shadow::kGranuleShift;
    units_.set(begin, whole, 0);
    if (whole == all) [[likely]]
      return;
    const std::size_t rest = requested & (shadow::kGranuleSize - 1);
    AppAddr tail = begin + (requested - rest);
    if (rest != 0) {
      units_.set(tail, 1, static_cast<std::uint8_t>(rest));
      tail = tail + shadow::kGranuleSize;
    }
    tag(tail, begin + total - tail, shadow::ShadowTag::kRegionTail);
  }
  void guard(AppAddr begin, std::size_t bytes) { tag(begin, bytes, shadow::ShadowTag::kRegionGuard); }
  // The shadow of a range will be written soon; asks for as much of it as is worth asking for.
  void expect(AppAddr begin, std::size_t bytes) {
    units_.expect(begin, std::min(bytes >> shadow::kGranuleShift, kExpectedBytes));
  }
  // For whoever subdivides a live area whose units are all populated. begin is granule aligned; so are the bytes of
  // poison(), while unpoison() ends exactly.
  void poison(AppAddr begin, std::size_t bytes, shadow::ShadowTag value) { tag(begin, bytes, value); }
  void unpoison(AppAddr begin, std::size_t bytes) {
    units_.set(begin, bytes >> shadow::kGranuleShift, 0);
    const std::size_t rest = bytes & (shadow::kGranuleSize - 1);
    if (rest != 0) units_.set(begin + (bytes - rest), 1, static_cast<std::uint8_t>(rest));
  }
  void forbid(AppAddr begin, std::size_t bytes) { tag(begin, bytes, shadow::ShadowTag::kRegionFreed); }
  // A live area changes its size within its pages: only granules that change are written, so that no byte which stays
  // accessible is inaccessible for a moment (facts kasan 1.6 #15).
  void resize(AppAddr begin, std::size_t requested, std::size_t old) {
    const std::size_t from = round_down(std::min(requested, old), shadow::kGranuleSize);
    const std::size_t to = round_up(std::max(requested, old), shadow::kGranuleSize);
    allow(begin + from, requested - from, to - from);
  }

  std::size_t begin_flush(std::size_t keep, iovec* ranges, std::size_t max) {
    return units_.begin_flush(keep, ranges, max);
  }
  void end_flush(bool dropped) {
    if (dropped) {
      units_.end_flush();
    } else {
      units_.abort_flush();
    }
  }
  std::size_t resident() const { return units_.resident(); }
  std::size_t dying() const { return units_.dying(); }
  std::size_t pinned() const { return units_.pinned(); }
  std::uint32_t fills_in_flight() const { return units_.fills_in_flight(); }
  void repair_after_fork() { units_.repair_after_fork(); }

  shadow::UnitMap& units() { return units_; }
  const shadow::UnitMap& units() const { return units_; }

 private:
  // Of shadow: what one page has. Longer runs are met by the processor's own prefetching.
  static constexpr std::size_t kExpectedBytes = kPageSize >> shadow::kGranuleShift;

  void tag(AppAddr begin, std::size_t bytes, shadow::ShadowTag value) {
    units_.set(begin, bytes >> shadow::kGranuleShift, static_cast<std::uint8_t>(value));
  }

  shadow::UnitMap units_;
};

}  // namespace penumbra::region
