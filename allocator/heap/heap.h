// The heap under malloc: mimalloc blocks inside regions, a 16-byte header and redzones around each object,
// and a quarantine of freed ones. Objects above the arena's largest size are regions of their own.
//
// Verdicts go up; nothing here prints. Callers (runtime/preload) bring the stacks.
//
// zone: nomalloc
#pragma once

#include "runtime/base/address.h"
#include "runtime/base/fault.h"
#include "runtime/base/options.h"
#include "runtime/base/stack_id.h"

#include <cstddef>
#include <cstdint>

namespace penumbra::heap {

enum class BlockState : std::uint8_t { kNone, kLive, kQuarantined, kFreed };
// kMismatched: freed all the same. kCorruptHeader: given up, its memory is never used again.
enum class FreeVerdict : std::uint8_t { kFreed, kDoubleFree, kInvalid, kMismatched, kCorruptHeader };

struct Request {
  std::size_t bytes = 0;
  std::size_t alignment = 16;  // a power of two
  bool zero = false;
  AllocatorName by = AllocatorName::kMalloc;
  StackId stack = kNoStack;
};

// What is known of the object nearest to an address, for reports.
struct BlockInfo {
  BlockState state = BlockState::kNone;
  AppAddr begin;
  std::size_t bytes = 0;        // as requested
  std::size_t block_bytes = 0;  // the whole block, redzones included
  AllocatorName by = AllocatorName::kNone;
  bool is_large = false;  // a region of its own
  StackId allocated = kNoStack;
  StackId freed = kNoStack;
  std::uint32_t allocated_by = 0;  // thread ids
  std::uint32_t freed_by = 0;
};

// Needs region::init(). False where mimalloc cannot be found.
bool init(const Options& options);
bool owns(AppAddr a);  // lies in an arena or in a large object

// What free() would say of a pointer, and what it is if that is kFreed (a live object).
struct ObjectInfo {
  FreeVerdict verdict = FreeVerdict::kInvalid;
  AllocatorName by = AllocatorName::kNone;
  std::size_t alignment = 0;  // as requested
  std::size_t bytes = 0;      // as requested
};

ObjectInfo inspect(const void* object);

// The first `bytes` bytes of a live object become those of another one, just allocated; the first is about to be freed and
// its content may be gone afterwards.
void move_contents(void* to, void* from, std::size_t bytes);

// Null with errno ENOMEM when it cannot be had.
void* allocate(const Request& request);
// `by` kNone accepts any allocator. `was` receives the allocator that a freed object came from.
FreeVerdict free(void* object, AllocatorName by, StackId stack, AllocatorName* was = nullptr);
// Bytes requested of a live object, ~0 if none begins here.
std::size_t requested_bytes(const void* object);
// Signal-safe; tries locks only.
bool describe(AppAddr a, BlockInfo& info);

struct Stats {
  std::uint64_t arenas, arena_bytes, taken_units;
  std::uint64_t quarantined_bytes;  // in the queues; each thread holds a batch on top
  std::uint64_t lost_blocks;        // freed where neither batch nor queue could take them
};

Stats stats();
// Gives back what the quarantine holds, but for other threads' batches.
void drain_quarantine();
// This thread's batch goes to the queue, and what the thread still frees after this goes there directly.
void thread_exit();
void fork_prepare();
void fork_parent();
void fork_child();
// In a child whose parent ran no fork_prepare(), by its only thread.
void fork_child_unprepared();
void validate();

}  // namespace penumbra::heap
