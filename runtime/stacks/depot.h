// The stack depot: every distinct stack stored once, named by 32 bits, found without a lock, within a byte budget.
//
//     buckets[hash & mask] -> record -> record -> 0         record: head | next | frames...
//
// The arena is reserved address space opened step by step; a handle is a record's distance in 8-byte words from its
// start. Nothing is ever removed. When the budget (option `depot`) is used up, or memory cannot be had, new stacks are
// lost and counted; stacks stored before are still found.
//
// I1  a linked record's head holds the magic, the count and the hash of its frames, and never changes.
// I2  a record is linked in the bucket of its hash.
// I3  chains end.
// I4  no two linked records hold the same frames: equality is decided by comparing them, never by hash alone.
// Lock-free: a record is written, then linked by one CAS; an insert that was interrupted for ever (a signal handler
// that does not return, a thread that a fork left behind) leaves an unlinked record behind and blocks nobody.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/stack_id.h"
#include "runtime/base/text_buffer.h"

namespace penumbra::stacks {

// The hash of a stack: a polynomial over its frames modulo 2^64, the outermost frame first, then mixed down to 32 bits.
//     h = 0; for each frame from the outermost inwards: h = h * kDepotMultiplier + frame
// A polynomial, so that the hash of a part of a stack follows from those of its ends (trail.h). Its low bits depend on
// the frames' low bits only; the mixing makes up for that.
inline constexpr std::uint64_t kDepotMultiplier = 0x9e3779b97f4a7c15u;

// kDepotMultiplier to the power of `frames`, at most kMaxStackFrames.
std::uint64_t depot_power(std::size_t frames);

constexpr std::uint32_t depot_hash_finish(std::uint64_t polynomial) {
  polynomial = (polynomial ^ polynomial >> 32) * 0xd6e8feb86659fd93u;
  return static_cast<std::uint32_t>(polynomial >> 32);
}

std::uint32_t depot_hash(const std::uintptr_t* frames, std::size_t count);
// depot_put() for who has the hash already. `count` is at most kMaxStackFrames, `hash` is that of these frames.
StackId depot_put_hashed(const std::uintptr_t* frames, std::size_t count, std::uint32_t hash);

struct DepotStats {
  std::uint64_t stacks = 0;
  std::uint64_t lost = 0;          // puts that got kNoStack
  std::uint64_t used_bytes = 0;    // of the arena
  std::uint64_t budget_bytes = 0;  // of the arena; 0 before the first put
  std::uint64_t wasted_bytes = 0;  // records that lost a race
};

DepotStats depot_stats();
void append_depot_stats(TextBuffer& out);
// Fails a check where I1..I4 do not hold. Quadratic in the length of a chain; for tests.
void validate_depot();

}  // namespace penumbra::stacks
