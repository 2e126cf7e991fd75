#include "shadow/address_map.h"

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>

#include "shadow/paged_map.h"

namespace penumbra::shadow {

constinit MapKind internal::g_map_kind = MapKind::kNone;

namespace {

using internal::g_map_kind;
using internal::g_paged_map;

constexpr std::size_t kSmallestAppBytes = std::size_t{64} << 20;
constexpr std::size_t kLargestAppBytes = kUserAddressEnd / 2;

struct Part {
  ShadowAddr begin;
  ShadowAddr end;
  bool accessible;

  AppAddr at() const { return AppAddr(begin.value); }
  std::size_t bytes() const { return end - begin; }
};

constexpr Part kParts[] = {
    {kLowShadowBegin, kLowShadowEnd, true},
    {kLowShadowEnd, kHighShadowBegin, false},
    {kHighShadowBegin, kHighShadowEnd, true},
};

void unmap_first(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) os::unmap(kParts[i].at(), kParts[i].bytes()).ignore();
}

}  // namespace

os::Result reserve_direct_map() {
  if (is_direct()) return os::Result(0);
  if (is_paged()) return os::Result(-EBUSY);
  for (std::size_t i = 0; i < std::size(kParts); ++i) {
    const Part& part = kParts[i];
    const os::Result mapped =
        part.accessible ? os::map_fixed_noreplace(part.at(), part.bytes()) : os::reserve_at(part.at(), part.bytes());
    if (!mapped.ok()) {
      unmap_first(i);
      return mapped;
    }
    // Both are hints: without them the map works as well, at the price of memory and of large core files.
    os::advise(part.at(), part.bytes(), MADV_DONTDUMP).ignore();
    if (part.accessible) os::advise(part.at(), part.bytes(), MADV_NOHUGEPAGE).ignore();
  }
  g_map_kind = MapKind::kDirect;
  return os::Result(0);
}

os::Result reserve_paged_map(std::size_t app_bytes) {
  if (is_paged()) return os::Result(0);
  if (is_direct()) return os::Result(-EBUSY);
  app_bytes = std::clamp(app_bytes, kSmallestAppBytes, kLargestAppBytes);
  for (;; app_bytes /= 2) {
    const std::size_t pages = app_bytes / kUnitSize;
    os::Result made = g_paged_map.init(static_cast<std::uint32_t>(pages + pages / 4));
    if (made.ok()) {
      // What the shadow is for must find room as well.
      made = os::reserve(AppAddr(), app_bytes);
      if (made.ok()) {
        os::unmap(made.address(), app_bytes).ignore();
        break;
      }
      g_paged_map.destroy();
    }
    if (app_bytes / 2 < kSmallestAppBytes) return made;
  }
  g_map_kind = MapKind::kPaged;
  return os::Result(0);
}

std::size_t paged_app_bytes() {
  return is_paged() ? g_paged_map.capacity() / 5 * 4 * kUnitSize : 0;
}

}  // namespace penumbra::shadow
