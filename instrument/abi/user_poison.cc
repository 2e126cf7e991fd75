// Manual poisoning, sanitizer/asan_interface.h: what annotated allocators and containers call.
//
// Only memory that belongs to the program may be poisoned: inside the region span a unit without memory has no shadow
// of its own, and a byte written there would outlive every area (memory ruling 1). Such a call does nothing.
//
// zone: signal-safe
#include "instrument/abi/abi.h"
#include "shadow/address_map.h"
#include "shadow/check.h"
#include "shadow/poison.h"

namespace penumbra::abi {
namespace {

using shadow::ShadowTag;

bool is_writable_shadow(AppAddr begin, std::size_t bytes) {
  if (!shadow::is_reserved() || bytes == 0 || begin.value + bytes < begin.value) return false;
  const AppAddr end = begin + bytes;
  const AppAddr last = end - 1;
  if (!shadow::has_shadow(begin) || !shadow::has_shadow(last)) return false;
  if ((begin < shadow::kLowMemoryEnd) != (last < shadow::kLowMemoryEnd)) return false;
  const shadow::Span& span = shadow::span();
  if (end <= span.begin || begin >= span.end) return true;
  if (begin < span.begin || end > span.end) return false;
  return span.first_unpopulated(begin, end) == shadow::kNoBadByte;
}

}  // namespace

extern "C" {

__attribute__((visibility("hidden"))) void penumbra_abi_poison_region(AppAddr begin, std::size_t bytes) {
  if (is_writable_shadow(begin, bytes)) shadow::poison_any(begin, bytes, ShadowTag::kUserPoison);
}

__attribute__((visibility("hidden"))) void penumbra_abi_unpoison_region(AppAddr begin, std::size_t bytes) {
  if (is_writable_shadow(begin, bytes)) shadow::unpoison_any(begin, bytes);
}

__attribute__((visibility("hidden"))) int penumbra_abi_address_is_poisoned(AppAddr address) {
  return shadow::is_accessible(address, 1) ? 0 : 1;
}

// The first byte that may not be touched, null if there is none.
__attribute__((visibility("hidden"))) void* penumbra_abi_region_is_poisoned(AppAddr begin, std::size_t bytes) {
  const AppAddr bad = shadow::first_bad(begin, bytes);
  return bad == shadow::kNoBadByte ? nullptr : bad.ptr<void>();
}

}  // extern "C"

}  // namespace penumbra::abi
