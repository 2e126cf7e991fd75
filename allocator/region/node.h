// A node: the part of the span that one CPU allocates from, under one lock.
//
// It owns zones of 4 MiB (whole shadow units), so that neighbours on different CPUs do not share shadow pages; free
// ranges inside them; pools of purged areas by size; and the areas of its zones that were freed and wait.
// One more node, the global one, owns what no other does: it has the free zones and large areas, and no pools.
//
// zone: nomalloc
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allocator/region/free_tree.h"
#include "allocator/region/record.h"
#include "runtime/base/locks.h"

namespace penumbra::region {

// Largest area kept in a pool and carved from a zone, as the kernel's MAX_VA_SIZE_PAGES: 1 MiB, or 32 units.
inline constexpr std::uint32_t kMaxPooledPages = 256;

// A number that only the holder of the node's lock changes and anybody may read, perhaps a moment late.
class LockedCount {
 public:
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }
  void add(std::uint64_t n) { value_.store(value() + n, std::memory_order_relaxed); }
  void sub(std::uint64_t n) { value_.store(value() - n, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// Areas in the order they came, from either end or from the middle. No lock of its own.
struct AreaQueue {
  Handle newest = kNoHandle;
  Handle oldest = kNoHandle;
  std::uint32_t count = 0;

  void push(const RecordTable& records, Handle h) {
    records[h].next = newest;
    records[h].area.previous = kNoHandle;
    (newest != kNoHandle ? records[newest].area.previous : oldest) = h;
    newest = h;
    ++count;
  }

  void remove(const RecordTable& records, Handle h) {
    const Record& r = records[h];
    (r.area.previous != kNoHandle ? records[r.area.previous].next : newest) = r.next;
    (r.next != kNoHandle ? records[r.next].area.previous : oldest) = r.area.previous;
    --count;
  }
};

// Purged areas of one size. Requests take the newest, whose shadow and records are warm; passes thin it from the
// oldest. What is reused has been through the lazy list either way.
struct Pool : AreaQueue {
  // Fewest areas since the last purge pass: so many were not needed, and only of those a pass takes some.
  std::uint32_t fewest = 0;

  void remove(const RecordTable& records, Handle h) {
    AreaQueue::remove(records, h);
    if (count < fewest) fewest = count;
  }
};

struct alignas(128) Node {
  Mutex lock;
  std::uint32_t waiting_unreported = 0;  // freed pages not yet added to the allocator's count
  LockedCount zones;
  LockedCount live_areas;
  LockedCount live_bytes;
  AreaQueue lazy;
  LockedCount lazy_areas;
  LockedCount lazy_bytes;
  LockedCount pooled_pages;
  LockedCount retained_areas;  // pooled with their memory
  LockedCount retained_pages;  // theirs that are in memory
  FreeTree free;
  RecordCache unused;
  Pool pools[kMaxPooledPages + 1];

  // The newest pooled area of this size that is aligned (alignment of `page + origin`, in pages), if it is among the
  // first few. The lock is held.
  Handle pop_pooled(const RecordTable& records, std::uint32_t pages, std::uint32_t alignment, std::uint64_t origin) {
    constexpr int kTries = 4;
    Handle h = pools[pages].newest;
    for (int i = 0; i < kTries && h != kNoHandle; ++i) {
      const Record& r = records[h];
      if (((r.page + origin) & (alignment - 1)) == 0) [[likely]] {
        take_pooled(records, h);
        return h;
      }
      h = r.next;
    }
    return kNoHandle;
  }

  void push_pooled(const RecordTable& records, Handle h) {
    const Record& r = records[h];
    pooled_pages.add(r.pages);
    if ((r.flags & Record::kHasMemory) != 0) {
      retained_areas.add(1);
      retained_pages.add(r.area.resident);
    }
    pools[r.pages].push(records, h);
  }

  // An area is freed, or comes back because nothing could close it.
  void push_lazy(const RecordTable& records, Handle h) {
    lazy.push(records, h);
    records[h].area.is_lazy = true;
    lazy_areas.add(1);
    lazy_bytes.add(records[h].area.requested);
  }

  // One that is in the lazy list.
  void take_lazy(const RecordTable& records, Handle h) {
    lazy.remove(records, h);
    records[h].area.is_lazy = false;
    lazy_areas.sub(1);
    lazy_bytes.sub(records[h].area.requested);
  }

  // One that is in the pool of its size.
  void take_pooled(const RecordTable& records, Handle h) {
    const Record& r = records[h];
    pools[r.pages].remove(records, h);
    pooled_pages.sub(r.pages);
    if ((r.flags & Record::kHasMemory) != 0) {
      retained_areas.sub(1);
      retained_pages.sub(r.area.resident);
    }
  }
};

}  // namespace penumbra::region
