// Container annotations: the part of a buffer that no element fills may not be touched (sanitizer/common_interface_defs.h).
//
//     storage_begin     begin        end          storage_end
//     |  container overflow  | elements | container overflow  |
//
// Poison has whole granules and prefixes of granules. So a granule in which the elements begin is accessible from its
// first byte, and a granule that the storage shares with its neighbours is left as it is where poisoning it would
// poison them: before the storage always, behind it when the byte at storage_end is accessible.
// Impossible arguments change nothing.
//
// zone: signal-safe
#include <algorithm>
#include <cstdint>

#include "instrument/abi/poisonable.h"
#include "shadow/bytes.h"
#include "shadow/check.h"
#include "shadow/encoding.h"

namespace penumbra::abi {
namespace {

using shadow::kGranuleSize;

struct Elements {
  AppAddr begin;
  AppAddr end;
};

bool is_within(const AppRange& storage, const Elements& elements) {
  return storage.begin <= elements.begin && elements.begin <= elements.end && elements.end <= storage.end;
}

std::uint8_t shadow_for(AppAddr granule, const Elements& elements) {
  const auto tag = static_cast<std::uint8_t>(shadow::ShadowTag::kContainerOverflow);
  if (elements.begin == elements.end || granule + kGranuleSize <= elements.begin || granule >= elements.end) {
    return tag;
  }
  return granule + kGranuleSize <= elements.end ? 0 : static_cast<std::uint8_t>(elements.end - granule);
}

// Granules of the storage that may be written.
AppRange own_granules(const AppRange& storage) {
  const AppAddr first(round_up(storage.begin.value, kGranuleSize));
  const bool shares_last = (storage.end.value & (kGranuleSize - 1)) != 0 && shadow::is_accessible(storage.end, 1);
  const AppAddr last(shares_last ? round_down(storage.end.value, kGranuleSize)
                                 : round_up(storage.end.value, kGranuleSize));
  return {first, std::max(first, last)};
}

void annotate(const AppRange& storage, const Elements& before, const Elements& now) {
  if (!is_within(storage, before) || !is_within(storage, now)) return;
  if (!is_poisonable(storage.begin, storage.bytes())) return;
  const AppRange own = own_granules(storage);
  // Only what changes: the granules between the old and the new ends.
  const auto rewrite = [&](AppAddr a, AppAddr b) {
    const AppAddr from = std::max(own.begin, AppAddr(round_down(std::min(a, b).value, kGranuleSize)));
    const AppAddr to = std::min(own.end, AppAddr(round_up(std::max(a, b).value, kGranuleSize)));
    for (AppAddr granule = from; granule < to; granule = granule + kGranuleSize) {
      shadow::store_byte(granule, shadow_for(granule, now));
    }
  };
  if (before.begin == before.end || now.begin == now.end) {
    rewrite(std::min(before.begin, now.begin), std::max(before.end, now.end));
    return;
  }
  rewrite(before.begin, now.begin);
  rewrite(before.end, now.end);
}

// First byte of [begin, end) that is accessible, or end.
AppAddr first_accessible(AppAddr begin, AppAddr end) {
  while (begin < end && !shadow::is_accessible(begin, 1)) begin = begin + 1;
  return begin;
}

// First byte of the storage whose state is not what the elements say, or null.
const void* find_wrong(const AppRange& storage, const Elements& elements) {
  const AppRange own = own_granules(storage);
  const AppAddr front(std::min(round_down(elements.begin.value, kGranuleSize), own.end.value));
  if (const AppAddr a = first_accessible(own.begin, front); a < front) return a.ptr<const void>();
  const AppAddr bad = shadow::first_bad(elements.begin, elements.end - elements.begin);
  if (bad != shadow::kNoBadByte) return bad.ptr<const void>();
  const AppAddr behind = std::max(own.begin, elements.end);
  const AppAddr stop = std::min(storage.end, own.end);
  if (const AppAddr a = first_accessible(behind, stop); a < stop) return a.ptr<const void>();
  return nullptr;
}

}  // namespace

extern "C" {

__attribute__((visibility("hidden"))) void penumbra_abi_annotate_contiguous(AppAddr begin, AppAddr end,
                                                                            AppAddr before, AppAddr now) {
  annotate({begin, end}, {begin, before}, {begin, now});
}

__attribute__((visibility("hidden"))) void penumbra_abi_annotate_double_ended(AppAddr storage_begin,
                                                                              AppAddr storage_end,
                                                                              AppAddr before_begin,
                                                                              AppAddr before_end, AppAddr begin,
                                                                              AppAddr end) {
  annotate({storage_begin, storage_end}, {before_begin, before_end}, {begin, end});
}

__attribute__((visibility("hidden"))) int penumbra_abi_verify_contiguous(AppAddr begin, AppAddr middle, AppAddr end) {
  return find_wrong({begin, end}, {begin, middle}) == nullptr ? 1 : 0;
}

__attribute__((visibility("hidden"))) int penumbra_abi_verify_double_ended(AppAddr storage_begin, AppAddr begin,
                                                                           AppAddr end, AppAddr storage_end) {
  return find_wrong({storage_begin, storage_end}, {begin, end}) == nullptr ? 1 : 0;
}

__attribute__((visibility("hidden"))) const void* penumbra_abi_contiguous_bad_address(AppAddr begin, AppAddr middle,
                                                                                      AppAddr end) {
  return find_wrong({begin, end}, {begin, middle});
}

__attribute__((visibility("hidden"))) const void* penumbra_abi_double_ended_bad_address(AppAddr storage_begin,
                                                                                        AppAddr begin, AppAddr end,
                                                                                        AppAddr storage_end) {
  return find_wrong({storage_begin, storage_end}, {begin, end});
}

}  // extern "C"

}  // namespace penumbra::abi
