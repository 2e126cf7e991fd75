// May these bytes be touched? Exact for every address, alignment and size.
//
// The answer comes from the shadow bytes, except inside the region span (set_span): there a byte also needs a
// populated unit, because untouched shadow reads as accessible (memory ruling 1).
//
// All functions answer "fine" while no shadow is reserved. They never write and never fault.
//
// zone: signal-safe
#pragma once

#include <atomic>

#include "shadow/encoding.h"
#include "shadow/unit_state.h"

namespace penumbra::shadow {

// No byte is bad. The one address that is never an answer: the byte at 0 has no verdict, because nothing is ever
// mapped there and touching it faults by itself. Every other address can be one, up to the last of all.
inline constexpr AppAddr kNoBadByte{};

// First byte of [addr, addr+size) that may not be touched, or kNoBadByte. size 0 is fine anywhere. A range that
// wraps around, or leaves the program's address space, is bad at the first byte that does (addr itself when it wraps).
AppAddr first_bad(AppAddr addr, std::size_t size);

// The same by a loop over single bytes; the definition that tests hold first_bad against.
AppAddr first_bad_reference(AppAddr addr, std::size_t size);

inline bool is_accessible(AppAddr addr, std::size_t size) {
  return first_bad(addr, size) == kNoBadByte;
}

// What the unit map knows and the bytes do not. first_unpopulated answers the first byte of [begin, end), which
// lies inside the span, whose memory is not there (empty unit, no live sparse area), or kNoBadByte.
struct Span {
  AppAddr begin;
  AppAddr end;
  AppAddr (*first_unpopulated)(AppAddr begin, AppAddr end) = nullptr;
  // The unit map's words, one a unit from `begin` on, for a first look without a call; null: there is none.
  const std::atomic<UnitWord>* words = nullptr;
};

// Set once at start by the unit map's owner.
void set_span(const Span& span);
const Span& span();

namespace internal {
extern Span g_span;
}

// Does [addr, addr+size) reach into the span, so that shadow bytes of 0 do not say all? 0 < size, and the range does
// not wrap.
inline bool meets_span(AppAddr addr, std::size_t size) {
  const Span& span = internal::g_span;
  return addr.value - span.begin.value + (size - 1) < span.end.value - span.begin.value + (size - 1);
}

// What the unit map says about a range whose shadow bytes are all 0: no byte of it lies in memory of the span that is
// not there. The range meets the span and does not wrap.
inline bool is_populated(AppAddr addr, std::size_t size) {
  const Span& span = internal::g_span;
  if (span.words != nullptr && addr >= span.begin && addr + size <= span.end) [[likely]] {
    const std::size_t unit = (addr - span.begin) / kUnitSize;
    const bool in_one = unit == (addr + (size - 1) - span.begin) / kUnitSize;
    if (in_one && is_populated(unit_state(span.words[unit].load(std::memory_order_acquire)))) [[likely]]
      return true;
  }
  const AppAddr begin = addr < span.begin ? span.begin : addr;
  const AppAddr end = addr + size > span.end ? span.end : addr + size;
  return span.first_unpopulated(begin, end) == kNoBadByte;
}

// From `addr` up to this address the shadow bytes say all; `addr` itself where its memory is not there. Never farther
// than to the end of the unit inside the span.
AppAddr populated_until(AppAddr addr);

}  // namespace penumbra::shadow
