// Memory that the program may poison by hand.
//
// Only what is its own: inside the region span a unit without memory has no shadow of its own, and a byte written there
// would outlive every area (memory ruling 1).
//
// zone: signal-safe
#pragma once

#include <cstddef>

#include "shadow/address_map.h"
#include "shadow/check.h"
#include "shadow/encoding.h"

namespace penumbra::abi {

inline bool is_poisonable(AppAddr begin, std::size_t bytes) {
  if (!shadow::is_reserved() || bytes == 0 || begin.value + bytes < begin.value) return false;
  const AppAddr end = begin + bytes;
  const AppAddr last = end - 1;
  if (!shadow::has_shadow(begin) || !shadow::has_shadow(last)) return false;
  if (shadow::is_direct() && (begin < shadow::kLowMemoryEnd) != (last < shadow::kLowMemoryEnd)) return false;
  const shadow::Span& span = shadow::span();
  if (end <= span.begin || begin >= span.end) return true;
  if (begin < span.begin || end > span.end) return false;
  return span.first_unpopulated(begin, end) == shadow::kNoBadByte;
}

}  // namespace penumbra::abi
