// Which shadow map this process has: the direct one, or the paged one where the direct one cannot be had.
//
// The direct map is one reservation at a fixed place, taken once, never touched here:
//
//     0            0x7fff8000     0x8fff7000   0x02008fff7000   0x10007fff8000        2^47
//     | low memory | low shadow   | image of   | high shadow    | high memory         |
//     |            |              | the shadow |                |                     |
//
// I1  after a successful reserve_direct_map(), both shadow parts are readable and writable, cost nothing until touched,
//     are never huge pages and never dumped; the image between them is inaccessible.
// I2  a failed reserve leaves no mapping behind, and map_kind() stays kNone: every check then passes.
//
// The paged map (paged_map.h) takes a table and page frames wherever the kernel puts them, so nothing may compute a shadow
// address; bytes.h reads and writes single bytes of either. The kind is set once at start and only read afterwards: one
// predictable branch where the two differ.
//
// zone: signal-safe (the reserves: nomalloc)
#pragma once

#include "runtime/base/os_linux.h"
#include "shadow/encoding.h"

namespace penumbra::shadow {

enum class MapKind : std::uint8_t { kNone, kDirect, kPaged };

namespace internal {
extern constinit MapKind g_map_kind;
}

inline MapKind map_kind() {
  return internal::g_map_kind;
}

inline bool is_reserved() {
  return map_kind() != MapKind::kNone;
}

inline bool is_direct() {
  return map_kind() == MapKind::kDirect;
}

inline bool is_paged() {
  return map_kind() == MapKind::kPaged;
}

// May a byte at this address belong to the program at all? Under the paged map all of user space may: what is ours in it
// is inaccessible or known to own_ranges.
inline bool has_shadow(AppAddr a) {
  return has_direct_shadow(a) || (is_paged() && a.value < kUserAddressEnd);
}

// Idempotent, as long as the same kind is asked for. Not thread-safe: called once at start, before the program's first
// thread.
os::Result reserve_direct_map();
// Room for the shadow of `app_bytes` and a quarter more, halved until the kernel gives it and so much address space
// besides, down to 64 MiB; how much it became is paged_app_bytes().
os::Result reserve_paged_map(std::size_t app_bytes);
std::size_t paged_app_bytes();

}  // namespace penumbra::shadow
