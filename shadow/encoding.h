// What one shadow byte means: the only home of the encoding's numbers.
//
// One shadow byte describes one granule of 8 application bytes:
//
//     0x00        all 8 bytes may be touched
//     0x01..0x07  only the first N may
//     0x80..0xff  none may, and the value (a tag) says why
//
// Compilers bake the scale and the offset into inline checks, rewritten code bakes them in too, and reports print
// the values: retire a value, never reuse it. Values that KASAN has keep KASAN's meaning (mm/kasan/kasan.h);
// ours fill gaps that neither KASAN nor ASan uses, so that a report can tell apart what the kernel cannot.
//
// 0 must mean "accessible": untouched shadow reads 0 through the zero page. Hence "never allocated" and "purged"
// region memory are states of a unit (shadow/units.h), not bytes.
//
// zone: signal-safe
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"
#include "runtime/base/config.h"

namespace penumbra::shadow {

inline constexpr unsigned kGranuleShift = 3;  // the root of all that follows
inline constexpr std::size_t kGranuleSize = std::size_t{1} << kGranuleShift;
// Bytes of application memory that one page of shadow describes: the unit in which shadow is populated.
inline constexpr std::size_t kUnitSize = kPageSize << kGranuleShift;
// Sign bit: the whole granule is poisoned. Inline checks compare signed.
inline constexpr std::uint8_t kFirstTag = 0x80;
// Where user-space ASan on x86-64 puts its shadow; gcc's default under an explicit inline threshold.
inline constexpr std::uintptr_t kShadowOffset = 0x7fff8000;

constexpr ShadowAddr shadow_of(AppAddr a) {
  return ShadowAddr((a.value >> kGranuleShift) + kShadowOffset);
}

constexpr AppAddr app_of(ShadowAddr s) {
  return AppAddr((s.value - kShadowOffset) << kGranuleShift);
}

// The four parts of the address space under the direct map (ASan's names for them).
inline constexpr AppAddr kLowMemoryEnd{kShadowOffset};
inline constexpr AppAddr kHighMemoryBegin{(kUserAddressEnd >> kGranuleShift) + kShadowOffset};
inline constexpr ShadowAddr kLowShadowBegin{kShadowOffset};
inline constexpr ShadowAddr kLowShadowEnd = shadow_of(kLowMemoryEnd);
inline constexpr ShadowAddr kHighShadowBegin = shadow_of(kHighMemoryBegin);
inline constexpr ShadowAddr kHighShadowEnd{kHighMemoryBegin.value};

// Under the direct map, may a byte at this address belong to the program at all? False for the shadow, its image, and
// beyond user space. For the map of this process: has_shadow() in address_map.h.
constexpr bool has_direct_shadow(AppAddr a) {
  return a < kLowMemoryEnd || (a >= kHighMemoryBegin && a.value < kUserAddressEnd);
}

enum class ShadowTag : std::uint8_t {
  // Ours.
  kRegionTail = 0xe1,          // between the requested bytes and the end of a region's last page
  kRegionGuard = 0xe2,         // the guard page behind a region
  kRegionFreed = 0xe3,         // freed, waiting for the purge or keeping its memory
  kStackGone = 0xe5,           // stack of a thread that has ended
  kContainerOverflow = 0xe6,   // __sanitizer_annotate_contiguous_container
  kHeapNeverAllocated = 0xe8,  // arena memory that no block has used yet
  kHeapLeftRedzone = 0xec,     // header and redzone before a heap block
  kInternal = 0xee,            // Penumbra's own memory
  // KASAN's and the compilers'.
  kAllocaLeft = 0xca,
  kAllocaRight = 0xcb,
  kStackLeft = 0xf1,
  kStackMid = 0xf2,
  kStackRight = 0xf3,
  kStackPartial = 0xf4,
  kStackAfterReturn = 0xf5,
  kUserPoison = 0xf7,     // __asan_poison_memory_region
  kRegionInvalid = 0xf8,  // inside the span: populated, not allocated; outside: compilers' use-after-scope
  kGlobalRedzone = 0xf9,
  kHeapFreedMeta = 0xfa,  // KASAN_SLAB_FREE_META; reserved
  kHeapFreed = 0xfb,
  kHeapRightRedzone = 0xfc,
  kLargeRedzone = 0xfe,  // around a large heap object
  kLargeFreed = 0xff,    // freed large heap object
};

struct TagInfo {
  ShadowTag tag;
  const char* meaning;  // the legend of a report
};

inline constexpr std::array kTags{
    TagInfo{ShadowTag::kAllocaLeft, "alloca left redzone"},
    TagInfo{ShadowTag::kAllocaRight, "alloca right redzone"},
    TagInfo{ShadowTag::kRegionTail, "region tail"},
    TagInfo{ShadowTag::kRegionGuard, "region guard"},
    TagInfo{ShadowTag::kRegionFreed, "freed region"},
    TagInfo{ShadowTag::kStackGone, "stack of a thread that has ended"},
    TagInfo{ShadowTag::kContainerOverflow, "container overflow"},
    TagInfo{ShadowTag::kHeapNeverAllocated, "heap, never allocated"},
    TagInfo{ShadowTag::kHeapLeftRedzone, "heap left redzone"},
    TagInfo{ShadowTag::kInternal, "Penumbra's own memory"},
    TagInfo{ShadowTag::kStackLeft, "stack left redzone"},
    TagInfo{ShadowTag::kStackMid, "stack middle redzone"},
    TagInfo{ShadowTag::kStackRight, "stack right redzone"},
    TagInfo{ShadowTag::kStackPartial, "stack partial redzone"},
    TagInfo{ShadowTag::kStackAfterReturn, "stack after return"},
    TagInfo{ShadowTag::kUserPoison, "poisoned by the program"},
    TagInfo{ShadowTag::kRegionInvalid, "region, not allocated (or stack after scope)"},
    TagInfo{ShadowTag::kGlobalRedzone, "global redzone"},
    TagInfo{ShadowTag::kHeapFreedMeta, "freed heap object with free track"},
    TagInfo{ShadowTag::kHeapFreed, "freed heap object"},
    TagInfo{ShadowTag::kHeapRightRedzone, "heap right redzone"},
    TagInfo{ShadowTag::kLargeRedzone, "large object redzone"},
    TagInfo{ShadowTag::kLargeFreed, "freed large object"},
};

constexpr bool tags_are_well_formed() {
  for (std::size_t i = 0; i < kTags.size(); ++i) {
    if (static_cast<std::uint8_t>(kTags[i].tag) < kFirstTag) return false;
    if (i > 0 && static_cast<std::uint8_t>(kTags[i - 1].tag) >= static_cast<std::uint8_t>(kTags[i].tag)) return false;
  }
  return true;
}

// Null for a value that is no tag.
constexpr const char* tag_meaning(std::uint8_t value) {
  for (const TagInfo& info : kTags) {
    if (static_cast<std::uint8_t>(info.tag) == value) return info.meaning;
  }
  return nullptr;
}

// May the byte at `offset` (0..7) of a granule with this shadow byte be touched?
constexpr bool granule_allows(std::uint8_t shadow, std::size_t offset) {
  return shadow == 0 || (shadow < kGranuleSize && offset < shadow);
}

static_assert(kGranuleSize - 1 < kFirstTag, "prefix counts and tags overlap");
static_assert(tags_are_well_formed(), "tags ascend, are unique, are >= 0x80");
static_assert(kUnitSize == 32u << 10);
static_assert(kLowShadowEnd.value == 0x8fff7000 && kHighShadowBegin.value == 0x02008fff7000 &&
                  kHighShadowEnd.value == 0x10007fff8000,
              "the layout of user-space ASan on x86-64");
static_assert(app_of(shadow_of(AppAddr(0x7f0012345678))) == AppAddr(0x7f0012345678));
// KASAN's values (mm/kasan/kasan.h); reports are read by people and tools that know them.
static_assert(static_cast<int>(ShadowTag::kLargeFreed) == 0xff &&
              static_cast<int>(ShadowTag::kLargeRedzone) == 0xfe &&
              static_cast<int>(ShadowTag::kHeapRightRedzone) == 0xfc &&
              static_cast<int>(ShadowTag::kHeapFreed) == 0xfb &&
              static_cast<int>(ShadowTag::kGlobalRedzone) == 0xf9 &&
              static_cast<int>(ShadowTag::kRegionInvalid) == 0xf8);

}  // namespace penumbra::shadow
