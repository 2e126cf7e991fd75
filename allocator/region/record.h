// Descriptors of pieces of the span, areas and free ranges alike, in one table that is never unmapped.
//
// A record is named by its index, a handle; handle 0 is none. One record type serves both, as in the kernel's
// vmap_area, so that freeing an area needs no memory: its own record becomes (or merges into) a free range.
// Because the table stays mapped and pieces are 4-byte handles, look-ups from signal handlers and reports may read
// any record at any time without a lock; what they read may be stale, and they check `state` before and after.
//
// R1  a record is on exactly one of: a free tree, a list (pool, lazy, chunk, unused), or none while it is live.
// R2  only the holder of a record's list or tree lock, or the winner of the claim on its state, writes it.
//
// zone: signal-safe
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allocator/region/regions.h"
#include "runtime/base/check.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/stack_id.h"

namespace penumbra::region {

using Handle = std::uint32_t;
inline constexpr Handle kNoHandle = 0;

enum class RecordState : std::uint8_t {
  kUnused,
  kFreeRange,  // in a free tree
  kOpening,    // taken from a tree or a pool, not published
  kLive,
  kResizing,  // live, and about to change its size
  kFreed,     // poisoned, waits in a lazy list
  kPurging,   // in the hands of the purger
  kPooled,    // purged, open, poisoned, waits for the next request of its size
};

struct Record {
  std::atomic<RecordState> state;
  AreaKind kind;
  std::uint8_t node;  // whose lists it belongs to: the owner of its zone, or the global node
  std::uint8_t flags;
  std::uint32_t page;   // first page, counted from the begin of the span
  std::uint32_t pages;  // of the area without its guard; of a free range: all
  Handle next;          // in whatever list it is; of a live stack: its keeper's number for it
  union {
    struct {
      std::uint64_t requested : 48;
      std::uint64_t
          resident : 14;  // pages in memory when they were last counted, by a purge; a stack's: of its guard
      std::uint64_t is_counted : 1;  // since the area was carved
      std::uint64_t is_lazy : 1;     // in its node's lazy list
      StackId allocated;
      StackId freed;
      std::uint32_t allocated_by;
      std::uint32_t freed_by;
      std::uint32_t span_pages;  // area, guard and padding: what goes back to the free tree
      Handle previous;           // in a pool or lazy list
    } area;
    struct {
      Handle left, right, parent;
      std::uint32_t largest;  // pages of the largest range in this subtree
      bool is_red;
    } tree;
  };

  // flags
  static constexpr std::uint8_t kHasMemory = 1;  // pages may be resident, with old contents
  static constexpr std::uint8_t kSparse = 2;     // units inside the requested bytes are not populated
  static constexpr std::uint8_t kMapped = 4;     // the caller may have mapped files over its pages
  static constexpr std::uint8_t kWhole = 8;      // opened by whole units, which are pinned (guards.h)
  static constexpr std::uint8_t kClosed = 16;    // memory is dropped and inaccessible already
  // Of an area in a purge chunk:
  static constexpr std::uint8_t kMustClose = 32;  // goes back to a free tree, not into a pool
  static constexpr std::uint8_t kDropping = 64;   // its memory is in the chunk's gather
  static constexpr std::uint8_t kReleased = 128;  // it is counted in its units no longer
};

static_assert(sizeof(Record) == 48);

class RecordTable {
 public:
  // Room for `capacity` records; takes address space, no memory.
  os::Result init(std::size_t capacity);
  void destroy();

  Record& operator[](Handle h) const { return records_[h]; }
  Handle handle_of(const Record& r) const { return static_cast<Handle>(&r - records_); }
  // Takes `count` fresh records; the first handle, or kNoHandle when the table is full. Lock-free.
  Handle grow(std::uint32_t count);
  std::uint32_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  Record* records_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint32_t capacity_ = 0;
  std::atomic<std::uint32_t> used_{1};
};

// A queue of records linked by `next`. No lock of its own.
struct RecordList {
  Handle head = kNoHandle;
  Handle tail = kNoHandle;
  std::uint32_t count = 0;

  bool is_empty() const { return head == kNoHandle; }

  void push(const RecordTable& table, Handle h) {
    table[h].next = kNoHandle;
    if (head == kNoHandle) {
      head = h;
    } else {
      table[tail].next = h;
    }
    tail = h;
    ++count;
  }

  Handle pop(const RecordTable& table) {
    const Handle h = head;
    if (h == kNoHandle) return h;
    head = table[h].next;
    if (head == kNoHandle) tail = kNoHandle;
    --count;
    return h;
  }
};

// Records that describe nothing, kept beside a lock so that taking one is a pop.
class RecordCache {
 public:
  // Makes sure that `count` pops succeed; false when the table is full.
  bool ensure(RecordTable& table, std::uint32_t count) {
    while (list_.count < count) {
      const Handle first = table.grow(kRefill);
      if (first == kNoHandle) return false;
      for (Handle h = first; h < first + kRefill; ++h) list_.push(table, h);
    }
    return true;
  }

  Handle pop(const RecordTable& table) {
    const Handle h = list_.pop(table);
    PENUMBRA_DCHECK(h != kNoHandle);
    return h;
  }

  void push(const RecordTable& table, Handle h) {
    table[h].state.store(RecordState::kUnused, std::memory_order_relaxed);
    list_.push(table, h);
  }

 private:
  static constexpr std::uint32_t kRefill = 32;
  RecordList list_;
};

}  // namespace penumbra::region
