// What one libc call reads and writes for the program: each range is checked, and a bad one becomes a Fault.
//
// A Touch lives in an interposed entry point, for the time of its checks: it knows the function's name and, by its
// frame, who called. All checks are exact (the bytes that the call really touches), none changes errno, and the
// program goes on afterwards, so several faults may come from one call.
//
// The first look at up to 57 bytes is inline. Inside the region span the unit map is asked as well: memory that was
// never allocated, or purged, has shadow that reads 0 (memory ruling 1).
// The kernel answers EFAULT instead of a SIGSEGV: ranges that it touches are checked by kernel_reads() and kernel_writes().
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "instrument/libc/scan.h"
#include "runtime/base/fault.h"
#include "shadow/address_map.h"
#include "shadow/check.h"
#include "shadow/encoding.h"

namespace penumbra::libc {

class Touch {
 public:
  // `frame` is __builtin_frame_address(0) of the entry point.
  Touch(const char* function, const void* frame) : function_(function), frame_(frame) {}

  void reads(const volatile void* p, std::size_t bytes) const { range(AppAddr(p), bytes, false); }
  void writes(const volatile void* p, std::size_t bytes) const { range(AppAddr(p), bytes, true); }

  // `count` characters, or a wrapped range where that many bytes do not exist.
  template <class Char>
  void reads_chars(const Char* p, std::size_t count) const {
    range(AppAddr(p), bytes_of<Char>(count), false);
  }
  template <class Char>
  void writes_chars(Char* p, std::size_t count) const {
    range(AppAddr(p), bytes_of<Char>(count), true);
  }

  // As reads() and writes(), for memory that the kernel touches: what lies outside the program's address space, or has
  // a negative size, is no access, the kernel answers EFAULT or EINVAL for it.
  void kernel_reads(const volatile void* p, std::size_t bytes) const { kernel_range(AppAddr(p), bytes, false); }
  void kernel_writes(const volatile void* p, std::size_t bytes) const { kernel_range(AppAddr(p), bytes, true); }

  // Reads `s` to its terminator, or `most` characters. passed is its length; a missing terminator is reported at the
  // first bad byte.
  template <class Char>
  Scan text(const Char* s, std::size_t most = kNoLimit) const {
    return judged(s, scan_for(s, most, Char{}));
  }
  // Reads `s` to the first `c`, at most `most` characters.
  template <class Char>
  Scan until(const Char* s, std::size_t most, Char c) const {
    return judged(s, scan_for(s, most, c));
  }
  // Reads `s` to the first `c` or its terminator.
  template <class Char>
  Scan text_until(const Char* s, Char c) const {
    return judged(s, scan_for(s, kNoLimit, c, Char{}));
  }
  template <class Char, class Stop>
  Scan text_until_if(const Char* s, Stop stop) const {
    return judged(s, scan_until(s, kNoLimit, stop));
  }
  // Reads two sequences up to the first pair of characters that `stop` says yes to.
  template <class Char, class Stop>
  void pair(const Char* a, const Char* b, std::size_t most, Stop stop) const {
    const PairScan pair = scan_pair(a, b, most, stop);
    judged(pair.second_is_bad ? b : a, pair.scan);
  }

  // Reports a scan that met a bad byte; hands it on.
  template <class Char>
  Scan judged(const Char* s, Scan scan) const {
    if (scan.end == ScanEnd::kBad) [[unlikely]]
      report_scan(AppAddr(s), scan.passed * sizeof(Char), sizeof(Char));
    return scan;
  }

  // [to, to+bytes) and [from, from+bytes) of a copy must not overlap. The same address twice is let through:
  // compilers copy structures onto themselves, and every copy loop gets that right.
  void distinct(const void* to, const void* from, std::size_t bytes) const {
    const std::uintptr_t a = reinterpret_cast<std::uintptr_t>(to);
    const std::uintptr_t b = reinterpret_cast<std::uintptr_t>(from);
    if ((a - b < bytes || b - a < bytes) && a != b) [[unlikely]]
      report_overlap(AppAddr(to), AppAddr(from), bytes);
  }

 private:
  static constexpr std::size_t kInlineBytes = 57;  // in eight granules at any alignment
  static constexpr std::size_t kMostKernelBytes = kNoLimit / 2;

  template <class Char>
  static std::size_t bytes_of(std::size_t count) {
    return count > kNoLimit / sizeof(Char) ? kNoLimit : count * sizeof(Char);
  }

  // May the shadow of a range that begins at `a` be loaded as one word? Never on the paged map.
  static bool is_plain(AppAddr a) {
    constexpr std::uintptr_t kHigh = shadow::kHighMemoryBegin.value;
    return (a.value - kHigh < kUserAddressEnd - kBlock - kHigh || a.value < shadow::kLowMemoryEnd.value - kBlock) &&
           shadow::is_direct();
  }

  // One load of eight shadow bytes, of which those behind the range are shifted out.
  static bool is_small_and_clean(AppAddr a, std::size_t bytes) {
    if (bytes - 1 >= kInlineBytes || !is_plain(a)) return false;
    std::uint64_t word;
    __builtin_memcpy(&word, shadow::shadow_of(a).ptr<const void>(), sizeof word);
    const std::size_t last = ((a.value & (shadow::kGranuleSize - 1)) + bytes - 1) >> shadow::kGranuleShift;
    return word << (56 - 8 * last) == 0 && (!shadow::meets_span(a, bytes) || shadow::is_populated(a, bytes));
  }

  void range(AppAddr a, std::size_t bytes, bool is_write) const {
    if (is_small_and_clean(a, bytes)) [[likely]]
      return;
    check_range(a, bytes, is_write);
  }

  void kernel_range(AppAddr a, std::size_t bytes, bool is_write) const {
    if (shadow::has_shadow(a) && bytes <= kMostKernelBytes) check_range(a, bytes, is_write);
  }

  void check_range(AppAddr a, std::size_t bytes, bool is_write) const;
  void report_scan(AppAddr begin, std::size_t good_bytes, std::size_t char_bytes) const;
  void report_overlap(AppAddr to, AppAddr from, std::size_t bytes) const;
  void report(Fault& fault) const;

  const char* function_;
  const void* frame_;
};

}  // namespace penumbra::libc
