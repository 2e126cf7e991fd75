// The exact answer about a few bytes, by general registers only: what the slots' routines may use while the program's
// vector registers are live.
//
// The same answer as shadow::first_bad for ranges that lie in one part of the address space, without the region span's
// "never allocated" (an access there faults by itself).
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "shadow/bytes.h"
#include "shadow/encoding.h"

namespace penumbra::load {

inline constexpr std::uintptr_t kAllFine = ~std::uintptr_t{0};

// First byte of [address, address + size) that may not be touched, or kAllFine. size > 0. An address without a shadow
// is fine here: the access itself will fault, with the program's own signal.
inline std::uintptr_t first_bad_exactly(std::uintptr_t address, std::size_t size) {
  const std::uintptr_t end = address + size;
  if (!shadow::has_shadow(AppAddr(address)) || !shadow::has_shadow(AppAddr(end - 1))) return kAllFine;
  for (std::uintptr_t granule = round_down(address, shadow::kGranuleSize); granule < end;
       granule += shadow::kGranuleSize) {
    const std::uint8_t byte = shadow::load_byte(AppAddr(granule));
    if (byte == 0) continue;
    const std::uintptr_t allowed_end = granule + (byte < shadow::kGranuleSize ? byte : 0);
    const std::uintptr_t from = granule < address ? address : granule;
    const std::uintptr_t to = granule + shadow::kGranuleSize < end ? granule + shadow::kGranuleSize : end;
    if (allowed_end < to) return allowed_end > from ? allowed_end : from;
  }
  return kAllFine;
}

// Process ruling 9: a load of 16 bytes or more that is aligned to its own size and touches at least one accessible byte
// is a compiler's or library's vector loop, not an error.
inline bool is_deliberate_over_read(std::uintptr_t address, std::size_t size, bool is_write) {
  if (is_write || size < 16 || (size & (size - 1)) != 0 || (address & (size - 1)) != 0) return false;
  for (std::uintptr_t granule = address; granule < address + size; granule += shadow::kGranuleSize) {
    const std::uint8_t byte = shadow::load_byte(AppAddr(granule));
    if (byte < shadow::kGranuleSize) return true;
  }
  return false;
}

}  // namespace penumbra::load
