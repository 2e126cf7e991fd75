// The shadow map that a test process has, and its single bytes: the suites of shadow, regions, heap and outline checks run
// once on the direct map and once, with PENUMBRA_TEST_SHADOW=paged, on the paged one.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "shadow/address_map.h"
#include "shadow/bytes.h"

namespace penumbra {

inline bool tests_paged_map() {
  const char* const kind = std::getenv("PENUMBRA_TEST_SHADOW");
  return kind != nullptr && std::strcmp(kind, "paged") == 0;
}

// May be called by every test; the first call decides.
inline os::Result reserve_test_map() {
  return tests_paged_map() ? shadow::reserve_paged_map(std::size_t{8} << 30) : shadow::reserve_direct_map();
}

// The shadow of whole units reads 0, and takes no memory.
inline void drop_shadow(AppAddr begin, std::size_t bytes) {
  if (shadow::is_paged()) {
    shadow::internal::g_paged_map.clear(begin, begin + bytes);
  } else {
    os::advise(AppAddr(shadow::shadow_of(begin).value), bytes >> shadow::kGranuleShift, 4).ignore();  // MADV_DONTNEED
  }
}

}  // namespace penumbra
