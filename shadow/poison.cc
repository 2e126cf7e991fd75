#include "shadow/poison.h"

#include <emmintrin.h>
#include <sys/mman.h>

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"
#include "shadow/address_map.h"
#include "shadow/bytes.h"
#include "shadow/paged_map.h"

namespace penumbra::shadow {
namespace {

bool is_aligned(std::size_t value) {
  return (value & (kGranuleSize - 1)) == 0;
}

void set_shadow(AppAddr begin, std::size_t bytes, std::uint8_t value) {
  set_bytes(begin, bytes >> kGranuleShift, value);
}

// How many bytes of a granule with this shadow may be touched from its first one on.
std::size_t allowed_by(std::uint8_t shadow) {
  return shadow == 0 ? kGranuleSize : shadow < kFirstTag ? shadow : 0;
}

// From here on one system call is cheaper than looking at each page.
constexpr std::size_t kDroppedBytes = 4 * kPageSize;

void zero_dirty_pages(std::uint8_t* p, std::uint8_t* end) {
  while (p < end) {
    auto* const page_end =
        reinterpret_cast<std::uint8_t*>(round_up(reinterpret_cast<std::uintptr_t>(p) + 1, kPageSize));
    std::uint8_t* const stop = std::min(page_end, end);
    const std::uint8_t* const dirty = raw_first_nonzero(p, stop);
    if (dirty != stop) raw_set(const_cast<std::uint8_t*>(dirty), 0, static_cast<std::size_t>(stop - dirty));
    p = stop;
  }
}

}  // namespace

void poison(AppAddr begin, std::size_t bytes, ShadowTag tag) {
  PENUMBRA_DCHECK(is_aligned(begin.value) && is_aligned(bytes));
  set_shadow(begin, bytes, static_cast<std::uint8_t>(tag));
}

void unpoison(AppAddr begin, std::size_t bytes) {
  PENUMBRA_DCHECK(is_aligned(begin.value));
  set_shadow(begin, round_down(bytes, kGranuleSize), 0);
  const std::size_t rest = bytes & (kGranuleSize - 1);
  if (rest != 0) store_byte(begin + bytes, static_cast<std::uint8_t>(rest));
}

void unpoison_with_tail(AppAddr begin, std::size_t bytes, std::size_t total, ShadowTag tail) {
  unpoison(begin, bytes);
  const std::size_t covered = round_up(bytes, kGranuleSize);
  PENUMBRA_DCHECK(covered <= total);
  poison(begin + covered, total - covered, tail);
}

namespace {

// Up to 16 bytes by two stores that may overlap.
void store_front(std::uint8_t* to, __m128i bytes, std::size_t count) {
  alignas(16) std::uint8_t from[16];
  _mm_store_si128(reinterpret_cast<__m128i*>(from), bytes);
  const auto copy = [&]<class T>(T) {
    T first;
    T last;
    __builtin_memcpy(&first, from, sizeof(T));
    __builtin_memcpy(&last, from + count - sizeof(T), sizeof(T));
    __builtin_memcpy(to, &first, sizeof(T));
    __builtin_memcpy(to + count - sizeof(T), &last, sizeof(T));
  };
  if (count >= 8) return copy(std::uint64_t{});
  if (count >= 4) return copy(std::uint32_t{});
  if (count >= 2) return copy(std::uint16_t{});
  if (count == 1) copy(std::uint8_t{});
}

}  // namespace

void set_block(AppAddr block, std::size_t left, ShadowTag left_tag, std::size_t bytes, std::size_t total,
               ShadowTag tail) {
  constexpr std::size_t kAtOnce = 16;  // shadow bytes
  if (total > kAtOnce * kGranuleSize || !is_direct()) {
    poison(block, left, left_tag);
    unpoison_with_tail(block + left, bytes, total - left, tail);
    return;
  }
  PENUMBRA_DCHECK(is_aligned(block.value) && is_aligned(left) && is_aligned(total));
  PENUMBRA_DCHECK(left + round_up(bytes, kGranuleSize) <= total);
  const auto all = [](std::size_t value) { return _mm_set1_epi8(static_cast<char>(value)); };
  const __m128i index = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const std::size_t end = (left + bytes) >> kGranuleShift;  // the first granule that is not accessible as a whole
  const std::size_t rest = bytes & (kGranuleSize - 1);
  const __m128i is_left = _mm_cmplt_epi8(index, all(left >> kGranuleShift));
  const __m128i is_end = rest != 0 ? _mm_cmpeq_epi8(index, all(end)) : _mm_setzero_si128();
  const __m128i is_tail = _mm_andnot_si128(_mm_or_si128(_mm_cmplt_epi8(index, all(end)), is_end), all(0xff));
  const __m128i values = _mm_or_si128(
      _mm_and_si128(is_left, all(static_cast<std::uint8_t>(left_tag))),
      _mm_or_si128(_mm_and_si128(is_end, all(rest)), _mm_and_si128(is_tail, all(static_cast<std::uint8_t>(tail)))));
  store_front(shadow_of(block).ptr<std::uint8_t>(), values, total >> kGranuleShift);
}

void poison_any(AppAddr begin, std::size_t bytes, ShadowTag tag) {
  if (bytes == 0) return;
  const AppAddr end = begin + bytes;
  const AppAddr first_whole(round_up(begin.value, kGranuleSize));
  const AppAddr last_whole(round_down(end.value, kGranuleSize));
  const auto value = static_cast<std::uint8_t>(tag);
  // Head: [begin, granule end). What stays accessible is the prefix before begin; if the range ends inside this
  // granule, only when nothing accessible follows it.
  if (begin < first_whole) {
    const std::size_t prefix = begin.value & (kGranuleSize - 1);
    const std::size_t allowed = allowed_by(load_byte(begin));
    const std::size_t range_end = end < first_whole ? end.value & (kGranuleSize - 1) : kGranuleSize;
    if (allowed > prefix && allowed <= range_end) {
      store_byte(begin, prefix == 0 ? value : static_cast<std::uint8_t>(prefix));
    }
    if (end <= first_whole) return;
  }
  if (first_whole < last_whole) set_shadow(first_whole, last_whole - first_whole, value);
  if (last_whole < end) {
    const std::size_t allowed = allowed_by(load_byte(last_whole));
    if (allowed != 0 && allowed <= end - last_whole) store_byte(last_whole, value);
  }
}

void unpoison_any(AppAddr begin, std::size_t bytes) {
  if (bytes == 0) return;
  const AppAddr end = begin + bytes;
  const AppAddr first(round_down(begin.value, kGranuleSize));
  const AppAddr last_whole(round_down(end.value, kGranuleSize));
  set_shadow(first, last_whole - first, 0);
  if (last_whole < end) {
    const std::uint8_t byte = load_byte(last_whole);
    const auto needed = static_cast<std::uint8_t>(end - last_whole);
    if (byte >= kFirstTag || (byte != 0 && byte < needed)) store_byte(last_whole, needed);
  }
}

void clear_stale(AppAddr begin, std::size_t bytes) {
  if (!is_reserved() || bytes == 0 || !has_shadow(begin) || !has_shadow(begin + (bytes - 1))) return;
  if (!is_direct()) [[unlikely]] {
    internal::g_paged_map.clear(AppAddr(round_down(begin.value, kGranuleSize)),
                                AppAddr(round_up((begin + bytes).value, kGranuleSize)));
    return;
  }
  std::uint8_t* const first = shadow_of(begin).ptr<std::uint8_t>();
  std::uint8_t* const end = shadow_of(begin + (bytes - 1)).ptr<std::uint8_t>() + 1;
  auto* const whole = reinterpret_cast<std::uint8_t*>(round_up(reinterpret_cast<std::uintptr_t>(first), kPageSize));
  auto* const whole_end =
      reinterpret_cast<std::uint8_t*>(round_down(reinterpret_cast<std::uintptr_t>(end), kPageSize));
  // Looking at untouched shadow costs a page fault a page, so a mapping of 64 GiB would take a second: dropping the
  // pages costs one call, whatever they hold.
  if (whole_end > whole && static_cast<std::size_t>(whole_end - whole) >= kDroppedBytes) {
    const AppAddr dropped(reinterpret_cast<std::uintptr_t>(whole));
    if (os::advise(dropped, static_cast<std::size_t>(whole_end - whole), MADV_DONTNEED).ok()) {
      zero_dirty_pages(first, whole);
      zero_dirty_pages(whole_end, end);
      return;
    }
  }
  zero_dirty_pages(first, end);
}

}  // namespace penumbra::shadow
