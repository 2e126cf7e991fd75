// Searches that may end early in memory that is longer than they read: checked in windows that double.
//
// Checking all of a long haystack on each call would make a loop over its matches quadratic; a window bounds what is
// checked beyond the match to about as much as was searched before it.
//
// zone: signal-safe
#pragma once

#include <algorithm>
#include <cstddef>

#include "instrument/libc/touch.h"

namespace penumbra::libc {

inline constexpr std::size_t kFirstWindow = 256;

// Where `needle` begins in [hay, hay+count), or count. Both are accessible, needle_count is not 0. Linear time.
std::size_t find_bytes(const char* hay, std::size_t count, const char* needle, std::size_t needle_count);

// The same by comparing at each place with `same`, for what libc offers no bounded search for.
template <class Char, class Same>
std::size_t find_plain(const Char* hay, std::size_t count, const Char* needle, std::size_t needle_count, Same same) {
  for (std::size_t i = 0; i + needle_count <= count; ++i) {
    std::size_t k = 0;
    while (k < needle_count && same(hay[i + k], needle[k])) ++k;
    if (k == needle_count) return i;
  }
  return count;
}

enum class Haystack : bool { kMemory, kText };  // kText ends at its terminator, too

// Reads `hay`, at most `most` characters, as far as a search for `needle` does, which is accessible.
template <class Char, class Find>
void search(const Touch& touch, Haystack kind, const Char* hay, std::size_t most, const Char* needle,
            std::size_t needle_count, Find find) {
  if (needle_count == 0 || most < needle_count) return;
  std::size_t begin = 0;
  for (std::size_t window = kFirstWindow + 2 * needle_count;; window *= 2) {
    const std::size_t looked_at = std::min(window, most - begin);
    const Char* const p = hay + begin;
    const Scan scan = kind == Haystack::kText ? scan_for(p, looked_at, Char{}) : accessible_run(p, looked_at);
    if (find(p, scan.passed, needle, needle_count) != scan.passed) return;
    if (scan.end == ScanEnd::kBad) touch.judged(hay, Scan{begin + scan.passed, ScanEnd::kBad});
    if (scan.end != ScanEnd::kLimit || looked_at == most - begin) return;
    begin += scan.passed - (needle_count - 1);  // a match may straddle two windows
  }
}

inline void find_in_memory(const Touch& touch, const char* hay, std::size_t bytes, const char* needle,
                           std::size_t needle_bytes) {
  search(touch, Haystack::kMemory, hay, bytes, needle, needle_bytes, find_bytes);
}

// Reads from the end down to the last `c`.
inline void find_backwards(const Touch& touch, const char* p, char c, std::size_t bytes) {
  std::size_t end = bytes;
  for (std::size_t window = kFirstWindow; end > 0; window *= 2) {
    const std::size_t begin = end - std::min(window, end);
    const bool is_clean = shadow::is_accessible(AppAddr(p + begin), end - begin);
    for (std::size_t i = end; i > begin; --i) {
      if (!is_clean && !shadow::is_accessible(AppAddr(p + i - 1), 1)) return touch.reads(p + i - 1, 1);
      if (p[i - 1] == c) return;
    }
    end = begin;
  }
}

}  // namespace penumbra::libc
