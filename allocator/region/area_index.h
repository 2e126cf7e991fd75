// Which record describes a page of the span: two flat tables, one load or two, no lock.
//
//     zones_[page >> 10]   kByPage, or the large area that covers the whole zone
//     pages_[page]         the area (guard included), kGone where one was purged, kNoHandle where none ever was
//
// It answers for every page of an area, so interior addresses need no search; this is what the kernel's busy trees
// are for, in constant time, and readable from a signal handler. Filling costs 4 bytes a page, or 4 bytes per zone
// for the zones inside a large area (64 GiB: 64 KiB).
//
// Writers own the range they write (it is theirs from the free tree until it returns there). Readers check the
// record they are led to.
//
// zone: signal-safe
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allocator/region/record.h"

namespace penumbra::region {

inline constexpr std::uint32_t kZonePages = 1024;
inline constexpr unsigned kZonePagesShift = 10;
inline constexpr std::size_t kZoneSize = kZonePages * kPageSize;

class AreaIndex {
 public:
  static constexpr Handle kGone = ~Handle{0};

  os::Result init(std::size_t span_pages);
  void destroy();

  // A handle, kNoHandle or kGone.
  Handle at(std::uint32_t page) const {
    const Handle zone = zones_[page >> kZonePagesShift].load(std::memory_order_acquire);
    return zone == kByPage ? pages_[page].load(std::memory_order_acquire) : zone;
  }

  // Says `h` (or kGone, kNoHandle) of all of [page, page+pages).
  void set(std::uint32_t page, std::uint32_t pages, Handle h) {
    for (std::uint32_t p = page; p < page + pages; ++p) pages_[p].store(h, std::memory_order_release);
  }
  // The same for a range that may cover whole zones.
  void set_large(std::uint32_t page, std::uint32_t pages, Handle h);
  // A zone goes to a node: its pages answer singly.
  void set_by_page(std::uint32_t zone) { zones_[zone].store(kByPage, std::memory_order_release); }

 private:
  static constexpr Handle kByPage = kNoHandle;

  std::atomic<Handle>* pages_ = nullptr;
  std::atomic<Handle>* zones_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace penumbra::region
