// Walking over text that the program owns, never past a byte that may not be touched.
//
// A walk goes by windows: the accessible characters from here to the end of the 64-byte block (eight shadow bytes)
// that holds them. Blocks lie inside a page, so a block may be read whole; what lies outside the window is masked out.
//
//     block       |................|................|................|................|   64 aligned bytes
//     shadow      | 0  | 0  | 0  | 0  | 5  | fc | fc | fc |                               8 aligned bytes, one load
//     window                  ^here.............^     the first bad byte ends it
//
// I1  no byte is read whose granule says that it may not be touched, unless a neighbour in its block may be
// I2  passed counts accessible characters only; after kBad the character at `passed` holds the first bad byte
// I3  a unit of the region span is asked for once, when a walk enters it: one that is not there ends the walk
// Memory outside the span whose shadow reads "fine" though nothing is mapped faults here as it would in libc.
//
// zone: signal-safe
#pragma once

#include <emmintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "shadow/bytes.h"
#include "shadow/check.h"
#include "shadow/encoding.h"

namespace penumbra::libc {

inline constexpr std::size_t kNoLimit = ~std::size_t{0};

enum class ScanEnd : std::uint8_t { kHit, kLimit, kBad };

struct Scan {
  std::size_t passed;  // characters before the one that ended the walk
  ScanEnd end;

  // Characters that are read: with the one that was looked for, without one that may not be touched.
  std::size_t touched() const { return passed + (end == ScanEnd::kHit ? 1 : 0); }
};

inline constexpr std::size_t kBlock = 64;

// Bytes from `here` on, at most `bytes`, before the first bad one. The range stays in one block, which lies in one
// page. Up to `there` a walk knows already that memory is there.
inline std::size_t accessible_bytes(AppAddr here, std::size_t bytes, AppAddr& there) {
  if (!shadow::has_shadow(here)) [[unlikely]]
    return 0;
  if (here >= there) [[unlikely]] {
    there = shadow::populated_until(here);
    if (there == here) return 0;
  }
  if (shadow::load_block(here) == 0) [[likely]]
    return bytes;
  const AppAddr bad = shadow::first_bad(here, bytes);
  return bad == shadow::kNoBadByte ? bytes : bad - here;
}

template <class Char>
bool is_aligned(const Char* p) {
  return (reinterpret_cast<std::uintptr_t>(p) & (sizeof(Char) - 1)) == 0;
}

// Accessible characters from p on, at most `most` and at most to the end of p's block (a misaligned wide character
// counts alone). 0 means that the character at p holds a bad byte; most is not 0. `there` is null in a walk's first
// call and the walk's own from then on.
template <class Char>
std::size_t window_at(const Char* p, std::size_t most, AppAddr& there) {
  const AppAddr here(p);
  if (!is_aligned(p)) [[unlikely]]
    return shadow::is_accessible(here, sizeof(Char)) ? 1 : 0;
  const std::size_t room = (kBlock - (here.value & (kBlock - 1))) / sizeof(Char);
  return accessible_bytes(here, std::min(room, most) * sizeof(Char), there) / sizeof(Char);
}

// One bit a byte of the block that `here` lies in: set where a character equals a or b. Bit 0 is the byte at `here`.
template <class Char>
std::uint64_t matches_in_block(AppAddr here, Char a, Char b) {
  const auto* block = reinterpret_cast<const __m128i*>(here.value & ~(kBlock - 1));
  std::uint64_t mask = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const __m128i text = _mm_load_si128(block + i);
    __m128i equal;
    if constexpr (sizeof(Char) == 1) {
      equal = _mm_or_si128(_mm_cmpeq_epi8(text, _mm_set1_epi8(static_cast<char>(a))),
                           _mm_cmpeq_epi8(text, _mm_set1_epi8(static_cast<char>(b))));
    } else {
      equal = _mm_or_si128(_mm_cmpeq_epi32(text, _mm_set1_epi32(static_cast<int>(a))),
                           _mm_cmpeq_epi32(text, _mm_set1_epi32(static_cast<int>(b))));
    }
    mask |= static_cast<std::uint64_t>(static_cast<std::uint32_t>(_mm_movemask_epi8(equal))) << (16 * i);
  }
  return mask >> (here.value & (kBlock - 1));
}

// Walks to the first character that equals a or b.
template <class Char>
Scan scan_for(const Char* s, std::size_t most, Char a, Char b) {
  std::size_t passed = 0;
  AppAddr there;
  while (passed < most) {
    const Char* const p = s + passed;
    const std::size_t window = window_at(p, most - passed, there);
    if (window == 0) return {passed, ScanEnd::kBad};
    if (!is_aligned(p)) [[unlikely]] {
      Char c;
      __builtin_memcpy(&c, p, sizeof c);
      if (c == a || c == b) return {passed, ScanEnd::kHit};
    } else if (const std::uint64_t mask = matches_in_block(AppAddr(p), a, b)) {
      const std::size_t hit = static_cast<std::size_t>(__builtin_ctzll(mask)) / sizeof(Char);
      if (hit < window) return {passed + hit, ScanEnd::kHit};
    }
    passed += window;
  }
  return {passed, ScanEnd::kLimit};
}

template <class Char>
Scan scan_for(const Char* s, std::size_t most, Char a) {
  return scan_for(s, most, a, a);
}

// Walks to the first character that `stop` says yes to.
template <class Char, class Stop>
Scan scan_until(const Char* s, std::size_t most, Stop stop) {
  std::size_t passed = 0;
  AppAddr there;
  while (passed < most) {
    const std::size_t window = window_at(s + passed, most - passed, there);
    if (window == 0) return {passed, ScanEnd::kBad};
    for (std::size_t i = 0; i < window; ++i) {
      Char c;
      __builtin_memcpy(&c, s + passed + i, sizeof c);
      if (stop(c)) return {passed + i, ScanEnd::kHit};
    }
    passed += window;
  }
  return {passed, ScanEnd::kLimit};
}

// Characters before the terminator of a text that libc or the kernel has just written; reads it unchecked.
template <class Char>
std::size_t unchecked_length(const Char* s) {
  std::size_t length = 0;
  while (s[length] != Char{}) ++length;
  return length;
}

// Accessible characters of [p, p+count), looked at without reading them: ends with kLimit or kBad.
template <class Char>
Scan accessible_run(const Char* p, std::size_t count) {
  const AppAddr bad = shadow::first_bad(AppAddr(p), count * sizeof(Char));
  if (bad == shadow::kNoBadByte) return {count, ScanEnd::kLimit};
  return {(bad - AppAddr(p)) / sizeof(Char), ScanEnd::kBad};
}

// Characters, by steps of 16 bytes, that are equal in both and not zero.
template <class Char>
std::size_t equal_prefix(const Char* a, const Char* b, std::size_t count) {
  constexpr std::size_t kStep = 16 / sizeof(Char);
  std::size_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i));
    const __m128i y = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + i));
    const __m128i zero = _mm_setzero_si128();
    const __m128i ended = sizeof(Char) == 1 ? _mm_cmpeq_epi8(x, zero) : _mm_cmpeq_epi32(x, zero);
    if (_mm_movemask_epi8(_mm_andnot_si128(ended, _mm_cmpeq_epi8(x, y))) != 0xffff) break;
  }
  return i;
}

// Walks over two sequences to the first pair of characters that `stop` says yes to, which it never does to two equal
// ones that are not zero. After kBad, `second_is_bad` says
// in which one (the first is looked at first).
struct PairScan {
  Scan scan;
  bool second_is_bad;
};

template <class Char, class Stop>
PairScan scan_pair(const Char* a, const Char* b, std::size_t most, Stop stop) {
  std::size_t passed = 0;
  AppAddr a_there;
  AppAddr b_there;
  while (passed < most) {
    const std::size_t in_a = window_at(a + passed, most - passed, a_there);
    if (in_a == 0) return {{passed, ScanEnd::kBad}, false};
    const std::size_t in_b = window_at(b + passed, in_a, b_there);
    if (in_b == 0) return {{passed, ScanEnd::kBad}, true};
    for (std::size_t i = equal_prefix(a + passed, b + passed, in_b); i < in_b; ++i) {
      Char x;
      Char y;
      __builtin_memcpy(&x, a + passed + i, sizeof x);
      __builtin_memcpy(&y, b + passed + i, sizeof y);
      if (stop(x, y)) return {{passed + i, ScanEnd::kHit}, false};
    }
    passed += in_b;
  }
  return {{passed, ScanEnd::kLimit}, false};
}

}  // namespace penumbra::libc
