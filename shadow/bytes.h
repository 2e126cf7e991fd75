// Single bytes of shadow, whichever map the process has.
//
// Everything that is not a hot path of its own reads and writes shadow by these: one predictable branch more than a load.
// Runs of it are poison.h's, questions about ranges check.h's.
//
// load_byte and load_block are inline and use general registers only, so that rewritten code may call what is made of
// them. A map must be reserved, and the address have shadow.
//
// zone: signal-safe
#pragma once

#include <cstdint>

#include "runtime/base/raw_memory.h"
#include "shadow/address_map.h"
#include "shadow/encoding.h"
#include "shadow/paged_map.h"

namespace penumbra::shadow {

inline std::uint8_t load_byte(AppAddr a) {
  if (is_direct()) [[likely]]
    return *shadow_of(a).ptr<const volatile std::uint8_t>();
  return internal::g_paged_map.load(a);
}

// The eight shadow bytes of the 64-byte block that `a` lies in; the lowest byte is the first granule's.
inline std::uint64_t load_block(AppAddr a) {
  if (is_direct()) [[likely]]
    return *shadow_of(AppAddr(a.value & ~std::uintptr_t{63})).ptr<const volatile std::uint64_t>();
  return internal::g_paged_map.load_block(a);
}

// On the paged map these may find no page to write into (paged_map.h): then nothing changes.
inline void store_byte(AppAddr a, std::uint8_t value) {
  if (is_direct()) [[likely]] {
    *shadow_of(a).ptr<volatile std::uint8_t>() = value;
  } else {
    internal::g_paged_map.store(a, value);
  }
}

inline void set_bytes(AppAddr begin, std::size_t granules, std::uint8_t value) {
  if (is_direct()) [[likely]] {
    raw_set(shadow_of(begin).ptr<std::uint8_t>(), value, granules);
  } else {
    internal::g_paged_map.set(begin, granules, value);
  }
}

// Beginning of the first granule of [begin, end) whose shadow is not 0, or `end`. Both are granule aligned and in one part
// of the address space.
AppAddr first_nonzero(AppAddr begin, AppAddr end);

}  // namespace penumbra::shadow
