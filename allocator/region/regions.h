// The process's region allocator: one span of address space, vmalloc's semantics, lazily populated shadow.
//
// This is the facade that heap, preload, C API and reports use; the allocator itself is the template
// RegionAllocator<ShadowPolicy> (region_allocator.h), of which this holds the lazy one.
//
// Every function may be called from any thread once init() has returned. None touches errno except allocate(),
// which sets it on failure. describe() may be called from a signal handler and from inside the allocator.
//
// zone: nomalloc
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"
#include "runtime/base/config.h"
#include "runtime/base/options.h"
#include "runtime/base/stack_id.h"

namespace penumbra::region {

enum class AreaKind : std::uint8_t { kVmalloc, kHeapLarge, kArena, kVmap, kMapRam, kPages, kPerCpu, kStack, kCode };
enum class AreaState : std::uint8_t { kNever, kLive, kFreed, kPurged };
enum class FreeVerdict : std::uint8_t { kFreed, kDoubleFree, kInterior, kForeign };

struct Request {
  std::size_t bytes = 0;               // as the caller asked; the area is rounded up to pages plus a guard page
  std::size_t alignment = kPageSize;   // a power of two
  bool zero = false;                   // all bytes read 0 (fresh memory always does; retained memory is cleared)
  bool huge = false;                   // align to 2 MiB and ask for huge pages when large enough
  AreaKind kind = AreaKind::kVmalloc;  // kArena: readable and writable, zero, its units left to the heap
  StackId stack = kNoStack;
  std::size_t guard_before = 0;  // kStack only, whole pages: the first so many of `bytes` stay inaccessible
};

// What is known about the area that covers or last covered an address.
struct AreaInfo {
  AreaState state = AreaState::kNever;
  AreaKind kind = AreaKind::kVmalloc;
  AppAddr begin;                 // behind the guard that a stack has in front
  std::size_t requested = 0;     // bytes the caller asked for
  std::size_t area_bytes = 0;    // with tail, without guards
  std::size_t guard_before = 0;  // bytes of a stack's guard in front of begin
  bool in_guard = false;         // the address lies in the guard page behind the area, or in the guard in front
  StackId allocated = kNoStack;
  StackId freed = kNoStack;
  std::uint32_t allocated_by = 0;  // thread ids
  std::uint32_t freed_by = 0;
};

struct Stats {
  std::uint64_t live_areas, live_bytes;          // requested bytes
  std::uint64_t lazy_areas, lazy_bytes;          // freed, not yet purged
  std::uint64_t retained_areas, retained_bytes;  // purged, memory kept; bytes in memory, about
  std::uint64_t shadow_pages, shadow_pages_dying, shadow_pinned;
  std::uint64_t flushes, flushed_pages, purge_passes, purge_chunks, longest_chunk_ns;  // thread CPU time
  std::uint64_t worker_chunks;  // of purge_chunks, those of a thread of ours
};

// False, with errno, when no span could be reserved; nothing else may be called then.
bool init(const Options& options);
bool is_initialized();
bool owns(AppAddr a);  // inside the span

// Null, with errno ENOMEM or EINVAL, when it cannot be had. bytes == 0 is EINVAL, as vmalloc(0) fails.
AppAddr allocate(const Request& request);
FreeVerdict free(AppAddr begin, StackId stack);
// The rest of the family (vrealloc, atomic free, vmap...) is declared beside the facade, one header each.

// Makes the shadow under [begin, begin+bytes) of a live arena real, filled with "heap, never allocated" by whoever
// comes first; then blocks may be poisoned there (memory ruling 5). Units stay populated. One load each when they
// are. False when there is no memory for the shadow.
[[nodiscard]] bool populate_arena(AppAddr begin, std::size_t bytes);

// Bytes requested of the live area that begins exactly here, 0 if there is none.
std::size_t requested_bytes(AppAddr begin);
// Tries locks only; false when it could not look (the answer is unknown) or the address is outside the span.
bool describe(AppAddr a, AreaInfo& info);

Stats stats();
// Frees the stacks that no thread runs on, purges everything that waits, empties the pools, drops retained memory and
// dying shadow.
void purge_all();
// As the RegionAllocator's functions; no effect without worker=1.
void hold_worker();
void resume_worker();
void fork_prepare();
void fork_parent();
void fork_child();
void validate();

}  // namespace penumbra::region
