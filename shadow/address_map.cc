#include "shadow/address_map.h"

#include <sys/mman.h>

namespace penumbra::shadow {
namespace {

constinit bool g_reserved = false;

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
  if (g_reserved) return os::Result(0);
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
  g_reserved = true;
  return os::Result(0);
}

bool is_reserved() {
  return g_reserved;
}

void release_direct_map_test_only() {
  if (!g_reserved) return;
  unmap_first(std::size(kParts));
  g_reserved = false;
}

}  // namespace penumbra::shadow
