#include "shadow/bytes.h"

#include <algorithm>

namespace penumbra::shadow {

AppAddr first_nonzero(AppAddr begin, AppAddr end) {
  if (is_direct()) [[likely]] {
    const std::uint8_t* const last = shadow_of(end).ptr<const std::uint8_t>();
    return app_of(ShadowAddr(raw_first_nonzero(shadow_of(begin).ptr<const std::uint8_t>(), last)));
  }
  const PagedMap& map = internal::g_paged_map;
  while (begin < end) {
    if (const AppAddr next = map.early_until(begin); next != begin) {
      begin = next;
      continue;
    }
    const AppAddr stop = std::min(AppAddr(round_down(begin.value, kUnitSize)) + kUnitSize, end);
    const std::size_t first = (begin.value & (kUnitSize - 1)) >> kGranuleShift;
    const std::size_t granules = (stop - begin) >> kGranuleShift;
    const std::size_t zeros = map.read(begin, [&](const std::uint8_t* page) {
      const std::uint8_t* const from = page + first;
      return static_cast<std::size_t>(raw_first_nonzero(from, from + granules) - from);
    });
    if (zeros != granules) return begin + zeros * kGranuleSize;
    begin = stop;
  }
  return end;
}

}  // namespace penumbra::shadow
