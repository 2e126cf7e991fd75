// Per-CPU memory: one object for each CPU that may ever run, at addresses a constant stride apart.
//
// A chunk is one area that holds a unit of 64 KiB for each CPU, with a guard page behind each, and begins at
// a multiple of 64 KiB so that a pointer into the first unit names its chunk with one load. An object takes
// the same granules in every unit, so one offset is valid in all of them, and in all chunks:
//
//     | unit of CPU 0 |guard| unit of CPU 1 |guard| ... | unit of CPU n-1 | the area's guard |
//       ^ p                   ^ p + stride
//
// All units live and die with their one area: a chunk that cannot be completed leaves nothing behind. (The
// kernel takes an area for each NUMA node instead, and must unwind.)
//
// P1  `used` has a bit for every granule of a live object and of the redzone behind it, `start` for its
//     first granule.
// P2  free_granules = clear bits of `used`; the chunk is in the list of that number's highest bit.
// P3  in each unit: accessible = the bytes of live objects; behind them "tail"; never used "invalid"; once
//     used "freed".
// P4  at most one chunk without an object is kept.
// P5  no run of free granules is longer than `longest`: searches that fail lower it, frees reset it.
//
// Unlike the kernel's, objects have redzones (bugzilla 215019 asks for it), and freed granules are reused
// late: the search goes on where the last one ended.
//
// zone: nomalloc
#pragma once

#include "allocator/region/granule_map.h"
#include "allocator/region/regions.h"
#include "allocator/region/span_table.h"
#include "runtime/base/check.h"
#include "runtime/base/locks.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"
#include "shadow/encoding.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>

namespace penumbra::region {

inline constexpr std::size_t kPerCpuUnitBytes = std::size_t{64} << 10;
// From the copy of one CPU to that of the next.
inline constexpr std::size_t kPerCpuStride = kPerCpuUnitBytes + kPageSize;

template <class Regions>
class PerCpuAreas {
 public:
  static constexpr std::size_t kUnitBytes = kPerCpuUnitBytes;
  static constexpr std::size_t kStride = kPerCpuStride;
  static constexpr std::size_t kMaxBytes = std::size_t{32} << 10;  // PCPU_MIN_UNIT_SIZE
  static constexpr std::size_t kMaxAlignment = kPageSize;

  // `cpus` is what every object is multiplied by; 0 means os::possible_cpus().
  constexpr explicit PerCpuAreas(Regions& regions, unsigned cpus = 0) : regions_(regions), cpus_(cpus) {}

  // The object of CPU 0; that of CPU c lies c * kStride behind. All bytes read 0. Null with EINVAL (0 bytes,
  // more than kMaxBytes, an alignment that is no power of two up to a page) or ENOMEM.
  AppAddr allocate(std::size_t bytes, std::size_t alignment, StackId stack);
  FreeVerdict free(AppAddr object);

  // Gives the chunk back that is kept without an object.
  void trim();

  void fork_prepare() { lock_.lock(); }

  void fork_parent() { lock_.unlock(); }

  void fork_child() { lock_.reset_after_fork(); }

  std::size_t chunks() const { return chunks_; }

  void validate() {
    LockGuard guard(lock_);
    validate_locked();
  }

 private:
  void validate_locked();

  // Where the build asks for it (meson -Dvalidate), under the lock.
  void validate_at_op_locked() {
    if constexpr (PENUMBRA_VALIDATE >= 2) validate_locked();
  }

  void validate_at_checkpoint_locked() {
    if constexpr (PENUMBRA_VALIDATE >= 1) validate_locked();
  }

  static constexpr std::size_t kGranules = kUnitBytes / shadow::kGranuleSize;
  static constexpr std::size_t kRedzone = 16;
  static constexpr unsigned kLists = 14;  // highest bit of 0..8192, and one for 0
  static constexpr unsigned kTries = 2;   // chunks of each list that are searched before a new one is made

  struct Chunk {
    AppAddr begin;
    Chunk* next;
    Chunk* previous;
    std::uint32_t free_granules;
    std::uint32_t cursor;
    std::uint32_t longest;
    GranuleMap<kGranules> used;
    GranuleMap<kGranules> start;
    GranuleMap<kGranules> freed;  // some object lay here once
  };

  static_assert(sizeof(Chunk) <= kPageSize);

  static unsigned list_of(std::size_t granules) {
    return granules == 0 ? 0 : 64 - static_cast<unsigned>(__builtin_clzll(granules)) - 1;
  }

  static std::size_t granules_for(std::size_t bytes) {
    return (round_up(bytes, shadow::kGranuleSize) + kRedzone) / shadow::kGranuleSize;
  }

  Chunk* add_chunk_locked(StackId stack);
  void remove_chunk_locked(Chunk* chunk);
  void link_locked(Chunk* chunk);
  void unlink_locked(Chunk* chunk);
  std::size_t place_locked(Chunk& chunk, std::size_t granules, std::size_t alignment);
  bool find_place_locked(std::size_t granules, std::size_t alignment, StackId stack, Chunk*& chunk, std::size_t& at);

  template <class Visit>
  void for_each_cpu(AppAddr object, Visit visit) const {
    for (unsigned cpu = 0; cpu < cpus_; ++cpu) visit(object + cpu * kStride);
  }

  Regions& regions_;
  unsigned cpus_;  // 0 until the first chunk
  Mutex lock_;
  SpanTable<Chunk> table_;
  std::size_t chunks_ = 0;
  Chunk* empty_ = nullptr;  // P4; in no list
  Chunk* lists_[kLists] = {};
};

template <class Regions>
void PerCpuAreas<Regions>::link_locked(Chunk* chunk) {
  Chunk*& head = lists_[list_of(chunk->free_granules)];
  chunk->next = head;
  chunk->previous = nullptr;
  if (head != nullptr) head->previous = chunk;
  head = chunk;
}

template <class Regions>
void PerCpuAreas<Regions>::unlink_locked(Chunk* chunk) {
  if (chunk->next != nullptr) chunk->next->previous = chunk->previous;
  if (chunk->previous != nullptr) {
    chunk->previous->next = chunk->next;
  } else {
    lists_[list_of(chunk->free_granules)] = chunk->next;
  }
}

template <class Regions>
auto PerCpuAreas<Regions>::add_chunk_locked(StackId stack) -> Chunk* {
  if (empty_ != nullptr) {
    Chunk* const kept = empty_;
    empty_ = nullptr;
    return kept;
  }
  if (!table_.open(regions_.span(), kUnitBytes)) return nullptr;
  if (cpus_ == 0) cpus_ = os::possible_cpus();
  const os::Result descriptor = os::map_anonymous(kPageSize);
  if (!descriptor.ok()) return nullptr;
  Request request;
  request.bytes = cpus_ * kStride - kPageSize;
  request.alignment = kUnitBytes;
  request.kind = AreaKind::kPerCpu;
  request.stack = stack;
  const AppAddr begin = regions_.allocate(request);
  if (begin.is_null()) {
    os::unmap(descriptor.address(), kPageSize).ignore();
    return nullptr;
  }
  for (unsigned cpu = 0; cpu < cpus_; ++cpu) {
    const AppAddr unit = begin + cpu * kStride;
    regions_.shadow().poison(unit, kUnitBytes, shadow::ShadowTag::kRegionInvalid);
    if (cpu + 1 < cpus_) regions_.shadow().poison(unit + kUnitBytes, kPageSize, shadow::ShadowTag::kRegionGuard);
  }
  auto* const chunk = new (descriptor.address().template ptr<Chunk>()) Chunk{};
  chunk->begin = begin;
  chunk->free_granules = kGranules;
  chunk->longest = kGranules;
  table_.set_owner(begin, chunk);
  ++chunks_;
  return chunk;
}

template <class Regions>
void PerCpuAreas<Regions>::remove_chunk_locked(Chunk* chunk) {
  table_.set_owner(chunk->begin, nullptr);
  regions_.free(chunk->begin, kNoStack);
  os::unmap(AppAddr(chunk), kPageSize).ignore();
  --chunks_;
}

// First granule of a place in the chunk, or kGranules.
template <class Regions>
std::size_t PerCpuAreas<Regions>::place_locked(Chunk& chunk, std::size_t granules, std::size_t alignment) {
  if (granules > chunk.longest) return kGranules;
  std::size_t at = chunk.used.find_clear_run(chunk.cursor, granules, alignment);
  if (at == kGranules && chunk.cursor != 0) at = chunk.used.find_clear_run(0, granules, alignment);
  // A run of granules + alignment - 1 would have held it, wherever it begins.
  if (at == kGranules) {
    chunk.longest = std::min(chunk.longest, static_cast<std::uint32_t>(granules + alignment - 2));
  }
  return at;
}

template <class Regions>
bool PerCpuAreas<Regions>::find_place_locked(std::size_t granules, std::size_t alignment, StackId stack,
                                             Chunk*& chunk, std::size_t& at) {
  // Fullest first, a few of each: the many that are nearly full must not use up the tries.
  for (unsigned list = list_of(granules); list < kLists; ++list) {
    unsigned tries = 0;
    for (chunk = lists_[list]; chunk != nullptr && tries < kTries; chunk = chunk->next, ++tries) {
      if (chunk->free_granules < granules) continue;
      at = place_locked(*chunk, granules, alignment);
      if (at != kGranules) {
        unlink_locked(chunk);
        return true;
      }
    }
  }
  chunk = add_chunk_locked(stack);
  if (chunk == nullptr) return false;
  at = place_locked(*chunk, granules, alignment);
  return true;
}

template <class Regions>
AppAddr PerCpuAreas<Regions>::allocate(std::size_t bytes, std::size_t alignment, StackId stack) {
  if (bytes == 0 || bytes > kMaxBytes || !is_power_of_two(alignment) || alignment > kMaxAlignment) {
    errno = EINVAL;
    return AppAddr();
  }
  const std::size_t granules = granules_for(bytes);
  AppAddr object;
  {
    LockGuard guard(lock_);
    Chunk* chunk = nullptr;
    std::size_t at = 0;
    if (!find_place_locked(granules, alignment <= shadow::kGranuleSize ? 1 : alignment / shadow::kGranuleSize, stack,
                           chunk, at)) {
      errno = ENOMEM;
      return AppAddr();
    }
    chunk->used.assign(at, granules, true);
    chunk->start.set(at);
    chunk->free_granules -= static_cast<std::uint32_t>(granules);
    chunk->cursor = static_cast<std::uint32_t>(at + granules) % kGranules;
    link_locked(chunk);
    object = chunk->begin + at * shadow::kGranuleSize;
  }
  const std::size_t covered = round_up(bytes, shadow::kGranuleSize);
  for_each_cpu(object, [&](AppAddr copy) {
    regions_.shadow().unpoison(copy, bytes);
    regions_.shadow().poison(copy + covered, kRedzone, shadow::ShadowTag::kRegionTail);
    raw_set(copy.ptr<void>(), 0, bytes);
  });
  return object;
}

template <class Regions>
FreeVerdict PerCpuAreas<Regions>::free(AppAddr object) {
  LockGuard guard(lock_);
  Chunk* const chunk = table_.owner(object);
  if (chunk == nullptr) return FreeVerdict::kForeign;
  const std::size_t offset = object - chunk->begin;
  const std::size_t at = offset / shadow::kGranuleSize;
  if (!chunk->used.test(at)) return chunk->freed.test(at) ? FreeVerdict::kDoubleFree : FreeVerdict::kForeign;
  if (!chunk->start.test(at) || offset % shadow::kGranuleSize != 0) return FreeVerdict::kInterior;
  // The object reaches to the next one, or to the next granule of nobody.
  const std::size_t end = chunk->start.next_set(at + 1, chunk->used.next_clear(at, kGranules));
  const std::size_t granules = end - at;
  for_each_cpu(object, [&](AppAddr copy) {
    regions_.shadow().poison(copy, granules * shadow::kGranuleSize, shadow::ShadowTag::kRegionFreed);
  });
  unlink_locked(chunk);
  chunk->used.assign(at, granules, false);
  chunk->start.clear(at);
  chunk->freed.assign(at, granules, true);
  chunk->free_granules += static_cast<std::uint32_t>(granules);
  chunk->longest = kGranules;
  if (chunk->free_granules < kGranules) {
    link_locked(chunk);
  } else if (empty_ == nullptr) {
    empty_ = chunk;
  } else {
    remove_chunk_locked(chunk);
  }
  validate_at_op_locked();
  return FreeVerdict::kFreed;
}

template <class Regions>
void PerCpuAreas<Regions>::trim() {
  LockGuard guard(lock_);
  if (empty_ == nullptr) return;
  remove_chunk_locked(empty_);
  empty_ = nullptr;
  validate_at_checkpoint_locked();
}

template <class Regions>
void PerCpuAreas<Regions>::validate_locked() {
  std::size_t found = empty_ != nullptr ? 1 : 0;
  for (unsigned list = 0; list < kLists; ++list) {
    for (const Chunk* chunk = lists_[list]; chunk != nullptr; chunk = chunk->next, ++found) {
      PENUMBRA_CHECK_OP(chunk->free_granules, ==, kGranules - chunk->used.population());  // P2
      PENUMBRA_CHECK_OP(list_of(chunk->free_granules), ==, list);                         // P2
      PENUMBRA_CHECK_OP(chunk->free_granules, <, kGranules);                              // P4
      PENUMBRA_CHECK(table_.owner(chunk->begin) == chunk);
      for (std::size_t bit = chunk->start.next_set(0, kGranules); bit < kGranules;
           bit = chunk->start.next_set(bit + 1, kGranules)) {
        PENUMBRA_CHECK(chunk->used.test(bit));  // P1
      }
      if (chunk->longest < kGranules) {
        PENUMBRA_CHECK_OP(chunk->used.find_clear_run(0, chunk->longest + 1, 1), ==, kGranules);  // P5
      }
    }
  }
  PENUMBRA_CHECK_OP(found, ==, chunks_);
}

}  // namespace penumbra::region
