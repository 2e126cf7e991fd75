// Manual poisoning, sanitizer/asan_interface.h: what annotated allocators and containers call.
//
// Where nothing may be poisoned (poisonable.h), a call does nothing.
//
// zone: signal-safe
#include "instrument/abi/poisonable.h"
#include "shadow/check.h"
#include "shadow/poison.h"

namespace penumbra::abi {

extern "C" {

__attribute__((visibility("hidden"))) void penumbra_abi_poison_region(AppAddr begin, std::size_t bytes) {
  if (is_poisonable(begin, bytes)) shadow::poison_any(begin, bytes, shadow::ShadowTag::kUserPoison);
}

__attribute__((visibility("hidden"))) void penumbra_abi_unpoison_region(AppAddr begin, std::size_t bytes) {
  if (is_poisonable(begin, bytes)) shadow::unpoison_any(begin, bytes);
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
