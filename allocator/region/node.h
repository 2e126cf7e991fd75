// A node: the part of the span that one CPU allocates from, under one lock.
//
// It owns zones of 4 MiB (whole shadow units), so that neighbours on different CPUs do not share shadow pages; free
// ranges inside them; pools of purged areas by size; and the areas of its zones that were freed and wait.
// One more node, the global one, owns what no other does: it has the free zones and large areas, and no pools.
//
// zone: nomalloc
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/region/free_tree.h"
#include "allocator/region/record.h"
#include "runtime/base/locks.h"

namespace penumbra::region {

// Largest area kept in a pool and carved from a zone, as the kernel's MAX_VA_SIZE_PAGES: 1 MiB, or 32 units.
inline constexpr std::uint32_t kMaxPooledPages = 256;

struct alignas(128) Node {
  Mutex lock;
  std::uint32_t zones = 0;
  std::uint32_t waiting_unreported = 0;  // freed pages not yet added to the allocator's count
  std::uint64_t live_areas = 0;
  std::uint64_t live_bytes = 0;
  RecordList lazy;
  std::uint64_t lazy_bytes = 0;
  std::uint64_t pooled_pages = 0;
  std::uint64_t retained_areas = 0;  // pooled with their memory
  std::uint64_t retained_pages = 0;
  FreeTree free;
  RecordCache unused;
  RecordList pools[kMaxPooledPages + 1];

  // The next pooled area of this size at this alignment (of `page + origin`, in pages): the oldest, or one of the
  // next few where that one is not aligned. The lock is held.
  Handle pop_pooled(const RecordTable& records, std::uint32_t pages, std::uint32_t alignment, std::uint64_t origin) {
    RecordList& pool = pools[pages];
    constexpr int kTries = 4;
    for (int i = 0; i < kTries; ++i) {
      const Handle h = pool.pop(records);
      if (h == kNoHandle) return h;
      Record& r = records[h];
      if (((r.page + origin) & (alignment - 1)) != 0) [[unlikely]] {
        pool.push(records, h);
        continue;
      }
      pooled_pages -= pages;
      if ((r.flags & Record::kHasMemory) != 0) {
        --retained_areas;
        retained_pages -= pages;
      }
      return h;
    }
    return kNoHandle;
  }

  void push_pooled(const RecordTable& records, Handle h) {
    Record& r = records[h];
    pooled_pages += r.pages;
    if ((r.flags & Record::kHasMemory) != 0) {
      ++retained_areas;
      retained_pages += r.pages;
    }
    pools[r.pages].push(records, h);
  }
};

}  // namespace penumbra::region
