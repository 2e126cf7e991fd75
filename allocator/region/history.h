// The last areas that were purged and given up, so that a late use of one still finds its stacks.
//
// A ring of kEntries; one writer at a time (the purge mutex), readers from anywhere: an entry counts for a reader
// only if the ring has not come round to it while it was copied.
//
// zone: signal-safe
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/region/record.h"

namespace penumbra::region {

struct PastArea {
  std::uint32_t page;
  std::uint32_t pages;
  std::uint64_t requested;
  StackId allocated;
  StackId freed;
  std::uint32_t allocated_by;
  std::uint32_t freed_by;
  AreaKind kind;
  std::uint16_t guard_pages;  // in front, of a stack
};

class History {
 public:
  // 4096 areas: 160 KiB, touched only as areas are given up.
  static constexpr std::uint64_t kEntries = 4096;

  void add(const PastArea& past) {
    const std::uint64_t n = written_.load(std::memory_order_relaxed);
    ring_[n % kEntries] = past;
    written_.store(n + 1, std::memory_order_release);
  }

  // The latest past area whose pages, or guard page, hold this page.
  bool find(std::uint32_t page, PastArea& found) const {
    const std::uint64_t end = written_.load(std::memory_order_acquire);
    const std::uint64_t begin = end > kEntries ? end - kEntries : 0;
    for (std::uint64_t n = end; n > begin; --n) {
      found = ring_[(n - 1) % kEntries];
      // The slot after the newest may be half written: one entry less is valid.
      if (written_.load(std::memory_order_acquire) - (n - 1) >= kEntries) return false;
      if (found.page <= page && page - found.page <= found.pages) return true;
    }
    return false;
  }

 private:
  PastArea ring_[kEntries]{};
  std::atomic<std::uint64_t> written_{0};
};

}  // namespace penumbra::region
