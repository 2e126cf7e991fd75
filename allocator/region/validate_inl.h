// The invariants of region_allocator.h, derived anew from the records and asked of witnesses: the shadow
// bytes, the unit words, and the kernel's list of mappings.
//
// Areas that other threads were just opening or freeing when the locks were taken are judged only where that
// cannot matter. Bytes inside the requested ones of a live area may carry poison of the program's or the
// heap's own; what they may not carry is ours.
//
// Part of RegionAllocator (region_allocator.h), included by region_allocator.cc only.
//
// zone: nomalloc
#pragma once

#include "allocator/region/region_allocator.h"

#include <algorithm>

namespace penumbra::region {

template <class Shadow>
void RegionAllocator<Shadow>::validate() {
  lock_all();
  validate_locked();
  unlock_all();
}

template <class Shadow>
typename RegionAllocator<Shadow>::Piece RegionAllocator<Shadow>::piece_at(std::uint32_t page) const {
  const Handle h = index_.at(page);
  if (h != kNoHandle && h != AreaIndex::kGone) {
    const Record& r = records_[h];
    return {h, nullptr, r.page + r.area.span_pages};
  }
  for (unsigned n = 0; n <= node_count_; ++n) {
    const std::uint32_t end = nodes_[n].free.end_of_range_at(page);
    if (end != 0) return {kNoHandle, &nodes_[n], end};
  }
  return {kNoHandle, nullptr, (page / kZonePages + 1) * kZonePages};
}

template <class Shadow>
void RegionAllocator<Shadow>::validate_locked() const {
  std::uint64_t free_pages = 0;
  for (unsigned n = 0; n <= node_count_; ++n) {
    nodes_[n].free.validate();
    free_pages += nodes_[n].free.free_pages();
  }
  std::uint64_t seen_free = 0;
  const std::uint32_t end = page_of(span_.end);
  for (std::uint32_t page = 0; page < end;) {
    const Piece piece = piece_at(page);
    PENUMBRA_CHECK(piece.end > page && piece.end <= end);
    if (piece.area != kNoHandle) {
      PENUMBRA_CHECK_OP(records_[piece.area].page, ==, page);  // A1: areas begin where the piece before ends
      validate_area(records_[piece.area], piece.area);
    } else if (piece.free_in != nullptr) {
      seen_free += piece.end - page;
    } else {
      PENUMBRA_CHECK(zones_in_hand_.load(std::memory_order_relaxed) != 0);  // A1: nothing is lost
    }
    page = piece.end;
  }
  PENUMBRA_CHECK_OP(seen_free, ==, free_pages);  // A1: no free range overlaps an area
  if constexpr (Shadow::kPopulates) validate_units();
  validate_counters();
  validate_mappings();
}

template <class Shadow>
void RegionAllocator<Shadow>::validate_area(const Record& r, Handle h) const {
  const RecordState state = r.state.load(std::memory_order_acquire);
  PENUMBRA_CHECK(state != RecordState::kUnused && state != RecordState::kFreeRange);
  PENUMBRA_CHECK(r.pages < r.area.span_pages && r.node <= node_count_);
  // A2, at every page of a small area; at every zone and both ends of a large one.
  const std::uint32_t step = r.node == node_count_ ? kZonePages : 1;
  for (std::uint32_t p = r.page; p < r.page + r.area.span_pages; p += step) PENUMBRA_CHECK_OP(index_.at(p), ==, h);
  PENUMBRA_CHECK_OP(index_.at(r.page + r.area.span_pages - 1), ==, h);
  validate_area_shadow(r);
}

// A4. A state that changes meanwhile takes the judgement back.
template <class Shadow>
void RegionAllocator<Shadow>::validate_area_shadow(const Record& r) const {
  if constexpr (Shadow::kPopulates) {
    if (r.kind == AreaKind::kArena || (r.flags & Record::kReleased) != 0) return;
    const RecordState state = r.state.load(std::memory_order_acquire);
    const AppAddr begin = begin_of(r);
    const AppAddr area_end = begin + bytes_of(r.pages);
    const AppRange interior = interior_of(r);
    const auto& units = shadow_.units();
    const auto holds = [&](AppAddr from, AppAddr to, auto accepts) {
      for (AppAddr a = from; a < to; a = a + shadow::kGranuleSize) {
        if (interior.contains(a)) a = interior.end;
        if (a >= to) break;
        const std::uint8_t byte = units.shadow_byte(a);
        if (!accepts(byte) && r.state.load(std::memory_order_acquire) == state) return false;
      }
      return true;
    };
    const auto is = [](shadow::ShadowTag tag) {
      return [tag](std::uint8_t byte) { return byte == static_cast<std::uint8_t>(tag); };
    };
    if (state == RecordState::kLive) {
      const AppAddr whole_end = begin + round_down(r.area.requested, shadow::kGranuleSize);
      const AppAddr payload = begin + guard_before(r);
      PENUMBRA_CHECK(holds(begin, payload, is(shadow::ShadowTag::kRegionGuard)));
      // On a stack kRegionInvalid is a compiler's use-after-scope.
      PENUMBRA_CHECK(holds(payload, whole_end, [&r](std::uint8_t byte) {
        return byte != static_cast<std::uint8_t>(shadow::ShadowTag::kRegionFreed) &&
               byte != static_cast<std::uint8_t>(shadow::ShadowTag::kRegionGuard) &&
               byte != static_cast<std::uint8_t>(shadow::ShadowTag::kRegionTail) &&
               (byte != static_cast<std::uint8_t>(shadow::ShadowTag::kRegionInvalid) || r.kind == AreaKind::kStack);
      }));
      PENUMBRA_CHECK(holds(begin + round_up(r.area.requested, shadow::kGranuleSize), area_end,
                           is(shadow::ShadowTag::kRegionTail)));
      PENUMBRA_CHECK(holds(area_end, end_of(r), is(shadow::ShadowTag::kRegionGuard)));
    } else if (state == RecordState::kPooled || state == RecordState::kPurging) {
      PENUMBRA_CHECK(holds(begin, area_end, is(shadow::ShadowTag::kRegionFreed)));
      PENUMBRA_CHECK(holds(area_end, end_of(r), is(shadow::ShadowTag::kRegionGuard)));
    }
  }
}

// A3, unit by unit: the areas that overlap it are those of its eight pages.
template <class Shadow>
void RegionAllocator<Shadow>::validate_units() const {
  if constexpr (Shadow::kPopulates) {
    const auto& units = shadow_.units();
    units.validate();
    for (std::uint32_t zone = 0; zone < page_of(span_.end) / kZonePages; ++zone) {
      for (std::uint32_t page = zone * kZonePages; page < (zone + 1) * kZonePages; page += kUnitPages) {
        const AppAddr at = address_of(page);
        std::uint32_t areas = 0;
        std::uint32_t opening = 0;
        bool is_arena = false;
        Handle previous = kNoHandle;
        for (std::uint32_t p = page; p < page + kUnitPages; ++p) {
          const Handle h = index_.at(p);
          if (h == previous || h == kNoHandle || h == AreaIndex::kGone) continue;
          previous = h;
          const Record& r = records_[h];
          if (r.kind == AreaKind::kArena) is_arena = true;
          if (interior_of(r).contains(at) || (r.flags & Record::kReleased) != 0) continue;
          if (r.state.load(std::memory_order_acquire) == RecordState::kOpening) ++opening;
          ++areas;
        }
        if (is_arena) continue;
        const shadow::UnitView unit = units.view(at);
        const std::uint32_t taken = unit.state == shadow::UnitState::kReady ? unit.count - unit.pinned : 0;
        const bool is_leftover = areas == 0 && previous != kNoHandle;  // a rescued unit inside a sparse area
        PENUMBRA_CHECK(is_leftover ? taken <= 1 : taken + opening >= areas && taken <= areas);
        if (unit.state == shadow::UnitState::kEmpty) {
          PENUMBRA_CHECK_OP(areas, ==, opening);
        }
        // An untouched zone has one look instead of 128.
        if (page % kZonePages == 0 && units.zone_populated(zone) == 0 && previous == kNoHandle &&
            global().free.end_of_range_at(page) >= (zone + 1) * kZonePages) {
          break;
        }
      }
    }
  }
}

// A5. Records in nobody's list are on their way; then the sums need not agree.
template <class Shadow>
void RegionAllocator<Shadow>::validate_counters() const {
  std::uint64_t live[kMaxNodes + 1]{};
  std::uint64_t live_bytes[kMaxNodes + 1]{};
  std::uint64_t freed[kMaxNodes + 1]{};
  std::uint64_t pooled[kMaxNodes + 1]{};
  std::uint64_t retained[kMaxNodes + 1]{};
  bool moving = false;
  for (Handle h = 1; h < records_.used(); ++h) {
    const Record& r = records_[h];
    switch (r.state.load(std::memory_order_acquire)) {
      case RecordState::kLive:
        ++live[r.node];
        live_bytes[r.node] += r.area.requested;
        break;
      case RecordState::kFreed: ++freed[r.node]; break;
      case RecordState::kPooled:
        pooled[r.node] += r.pages;
        if ((r.flags & Record::kHasMemory) != 0) retained[r.node] += r.area.resident;
        break;
      case RecordState::kOpening:
      case RecordState::kResizing:
      case RecordState::kPurging: moving = true; break;
      default: break;
    }
  }
  for (unsigned n = 0; n <= node_count_ && !moving; ++n) {
    const Node& node = nodes_[n];
    if (freed[n] != node.lazy.count) continue;  // claimed, not yet queued
    PENUMBRA_CHECK_OP(node.live_areas.value(), ==, live[n]);
    PENUMBRA_CHECK_OP(node.live_bytes.value(), ==, live_bytes[n]);
    PENUMBRA_CHECK_OP(node.pooled_pages.value(), ==, pooled[n]);
    PENUMBRA_CHECK_OP(node.retained_pages.value(), ==, retained[n]);
    std::uint64_t lazy_bytes = 0;
    for (Handle h = node.lazy.newest; h != kNoHandle; h = records_[h].next) lazy_bytes += records_[h].area.requested;
    PENUMBRA_CHECK_OP(node.lazy_bytes.value(), ==, lazy_bytes);
  }
}

// A6: /proc/self/maps, line by line: "begin-end perms ...".
template <class Shadow>
void RegionAllocator<Shadow>::validate_mappings() const {
  const os::Result fd = os::open_read("/proc/self/maps");
  if (!fd.ok()) return;
  char text[4096];
  std::uint64_t numbers[2] = {0, 0};
  int field = 0;  // 0, 1: the addresses; 2: the first letter of the permissions; 3: the rest of the line
  for (;;) {
    const os::Result got = os::read(static_cast<int>(fd.value()), text, sizeof text);
    if (!got.ok() || got.value() == 0) break;
    for (long i = 0; i < got.value(); ++i) {
      const char c = text[i];
      if (c == '\n') {
        field = 0;
        numbers[0] = numbers[1] = 0;
      } else if (field < 2) {
        if (c == '-' || c == ' ') {
          ++field;
        } else {
          numbers[field] = numbers[field] * 16 + static_cast<std::uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
        }
      } else if (field == 2) {
        const AppAddr begin = std::max(AppAddr(numbers[0]), span_.begin);
        const AppAddr end = std::min(AppAddr(numbers[1]), span_.end);
        if (begin < end) validate_mapping({begin, end}, c == 'r');
        field = 3;
      }
    }
  }
  os::close(static_cast<int>(fd.value())).ignore();
}

// A unit that was opened whole is pinned a moment later; until then the area that opened it says so.
template <class Shadow>
bool RegionAllocator<Shadow>::is_unit_opening(std::uint32_t page) const {
  const std::uint32_t first = page_of(AppAddr(round_down(address_of(page).value, shadow::kUnitSize)));
  for (std::uint32_t p = first; p < first + shadow::kUnitSize / kPageSize; ++p) {
    const Handle h = index_.at(p);
    if (h == kNoHandle || h == AreaIndex::kGone) continue;
    if (records_[h].state.load(std::memory_order_acquire) == RecordState::kOpening) return true;
  }
  return false;
}

template <class Shadow>
void RegionAllocator<Shadow>::validate_mapping(AppRange range, bool is_accessible) const {
  for (std::uint32_t page = page_of(range.begin); page < page_of(range.end);) {
    const Piece piece = piece_at(page);
    if (piece.area != kNoHandle) {
      const Record& r = records_[piece.area];
      // A program may protect parts of its stack.
      const bool in_payload = page - r.page < r.pages && r.kind != AreaKind::kStack;
      PENUMBRA_CHECK(is_accessible || !in_payload || r.state.load() != RecordState::kLive);
    } else if (piece.free_in == &global()) {
      PENUMBRA_CHECK(!is_accessible);
    } else if (piece.free_in != nullptr && is_accessible && guards_.kind() != GuardKind::kMarker) {
      if constexpr (Shadow::kPopulates) {
        // In this order: what no longer opens is pinned by now.
        PENUMBRA_CHECK(is_unit_opening(page) || shadow_.units().view(address_of(page)).pinned);
      }
    }
    page = piece.end;
  }
}

}  // namespace penumbra::region
