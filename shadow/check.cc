#include "shadow/check.h"

#include <algorithm>

#include "runtime/base/raw_memory.h"
#include "shadow/address_map.h"
#include "shadow/bytes.h"
#include "shadow/paged_map.h"

namespace penumbra::shadow {

constinit Span internal::g_span;

namespace {

using internal::g_span;

// First byte of [addr, addr+size) that lies in the span and is not there.
AppAddr first_unpopulated(AppAddr addr, std::size_t size) {
  return g_span.first_unpopulated(std::max(addr, g_span.begin), std::min(addr + size, g_span.end));
}

// First bad byte of [addr, last], all of whose shadow up to and including `final` begins at `p`, or kNoBadByte. `granule_of`
// turns a place in the shadow into the granule it describes.
template <class GranuleOf>
AppAddr first_bad_in(const std::uint8_t* p, const std::uint8_t* final, AppAddr addr, AppAddr last,
                     GranuleOf granule_of) {
  // A granule with a bad byte ends the search: a range that goes on into the next granule leaves a partial one
  // through its inaccessible end.
  p = raw_first_nonzero(p, final);
  const AppAddr granule = granule_of(p);
  const std::uint8_t shadow = *p;
  const AppAddr first = std::max(granule, addr);
  const AppAddr end = std::min(granule + kGranuleSize, last + 1);
  if (shadow == 0) return kNoBadByte;
  if (shadow >= kFirstTag || shadow >= kGranuleSize) return first;
  const AppAddr bad = std::max(granule + shadow, addr);
  return bad < end ? bad : kNoBadByte;
}

// By the bytes alone. [addr, addr+size) lies in one part of the program's address space.
AppAddr first_bad_by_shadow(AppAddr addr, std::size_t size) {
  const AppAddr last = addr + (size - 1);
  return first_bad_in(shadow_of(addr).ptr<const std::uint8_t>(), shadow_of(last).ptr<const std::uint8_t>(), addr,
                      last, [](const std::uint8_t* p) { return app_of(ShadowAddr(p)); });
}

// The same by the paged map: page by page, so that each is one section of the software TLB (memory ruling 16). A page
// ends with a granule, so a range that goes on takes it whole.
AppAddr first_bad_by_pages(AppAddr addr, std::size_t size) {
  const PagedMap& map = internal::g_paged_map;
  const AppAddr end = addr + size;
  while (addr < end) {
    const AppAddr unit(round_down(addr.value, kUnitSize));
    const AppAddr stop = std::min(unit + kUnitSize, end);
    const AppAddr last = stop - 1;
    const AppAddr bad = map.read(addr, [&](const std::uint8_t* page) {
      return first_bad_in(
          page + ((addr - unit) >> kGranuleShift), page + ((last - unit) >> kGranuleShift), addr, last,
          [&](const std::uint8_t* p) { return unit + static_cast<std::size_t>(p - page) * kGranuleSize; });
    });
    if (bad != kNoBadByte) return bad;
    addr = std::max(stop, map.early_until(stop.value < kUserAddressEnd ? stop : last));
  }
  return kNoBadByte;
}

// What the unit map adds to the answer of the bytes.
AppAddr judge_units(AppAddr addr, std::size_t size, AppAddr bad) {
  if (meets_span(addr, size) && !is_populated(addr, size)) [[unlikely]] {
    const AppAddr unpopulated = first_unpopulated(addr, size);
    if (unpopulated != kNoBadByte && (bad == kNoBadByte || unpopulated < bad)) bad = unpopulated;
  }
  return bad;
}

// No direct map: a paged one, or none.
AppAddr first_bad_otherwise(AppAddr addr, std::size_t size) {
  if (!is_paged()) return kNoBadByte;
  if (addr.value + size < addr.value || addr.value >= kUserAddressEnd) return addr;
  if (addr == kNoBadByte) [[unlikely]]
    return first_bad(addr + 1, size - 1);
  const std::size_t inside = std::min<std::size_t>(size, kUserAddressEnd - addr.value);
  const AppAddr bad = judge_units(addr, inside, first_bad_by_pages(addr, inside));
  return bad == kNoBadByte && inside < size ? AppAddr(kUserAddressEnd) : bad;
}

}  // namespace

void set_span(const Span& span) {
  g_span = span;
}

const Span& span() {
  return g_span;
}

AppAddr populated_until(AppAddr addr) {
  if (addr < g_span.begin) return g_span.begin;
  if (addr >= g_span.end) return AppAddr(kUserAddressEnd);
  const AppAddr unit_end = std::min(AppAddr(round_down(addr.value, kUnitSize)) + kUnitSize, g_span.end);
  const AppAddr bad = g_span.first_unpopulated(addr, unit_end);
  return bad == kNoBadByte ? unit_end : bad;
}

AppAddr first_bad(AppAddr addr, std::size_t size) {
  if (size == 0) return kNoBadByte;
  if (!is_direct()) [[unlikely]]
    return first_bad_otherwise(addr, size);
  if (addr.value + size < addr.value) return addr;
  if (!has_shadow(addr)) return addr;
  if (addr == kNoBadByte) [[unlikely]]
    return first_bad(addr + 1, size - 1);
  // Part of the address space that addr lies in; the range may run out of it.
  const AppAddr part_end = addr < kLowMemoryEnd ? kLowMemoryEnd : AppAddr(kUserAddressEnd);
  const std::size_t inside = std::min<std::size_t>(size, part_end - addr);
  const AppAddr bad = judge_units(addr, inside, first_bad_by_shadow(addr, inside));
  if (bad == kNoBadByte && inside < size) return part_end;
  return bad;
}

AppAddr first_bad_reference(AppAddr addr, std::size_t size) {
  if (!is_reserved()) return kNoBadByte;
  if (size != 0 && addr.value + size < addr.value) return addr;
  for (std::size_t i = 0; i < size; ++i) {
    const AppAddr byte = addr + i;
    if (byte == kNoBadByte) continue;
    if (!has_shadow(byte)) return byte;
    if (byte >= g_span.begin && byte < g_span.end && g_span.first_unpopulated(byte, byte + 1) != kNoBadByte) {
      return byte;
    }
    if (!granule_allows(load_byte(byte), byte.value & (kGranuleSize - 1))) return byte;
  }
  return kNoBadByte;
}

}  // namespace penumbra::shadow
