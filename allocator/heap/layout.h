// What a heap block looks like, byte for byte: the only home of the header's encoding.
//
//     block                object - 16          object                    object + bytes          block +
//     usable | gap, if aligned    | header (16)        | the program's bytes     | right redzone ...     | ^
//     what mimalloc gave                      ^ what the program gets
//
// The gap is empty for alignments up to 16; then the header is the whole left redzone. Otherwise the 8 bytes
// before the header hold the distance from block to object. All of the left side is tagged kHeapLeftRedzone,
// from the object's end to the block's kHeapRightRedzone. So where `ec ec` in the shadow meets anything else,
// an object begins.
//
//     header       word   state:2 large:1 by:3 log2(alignment):6 size and owner:52
//                  stack  of the allocation
//                  check  over object, word without state, stack, and a secret of the process
//     free record  word, stack of the free, thread that freed: over the first 16 bytes of a freed object
//
// The 52 bits are size:30 thread:22 in an arena block, and size:52 in a large object, whose region knows its
// thread. mimalloc writes its free-list link over the first 8 bytes of a block that it got back, which is the
// header's word. stack and check stay, and the record holds the word: a freed object stays describable until
// its memory is reused.
//
// I1  state goes kLive -> kQuarantined once, by compare-and-swap: whoever loses that is freeing twice.
// I2  a block has at least 16 bytes behind its header, so that the free record fits.
//
// zone: signal-safe
#pragma once

#include "runtime/base/address.h"
#include "runtime/base/config.h"
#include "runtime/base/fault.h"
#include "runtime/base/stack_id.h"

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace penumbra::heap {

inline constexpr std::size_t kHeaderBytes = 16;
inline constexpr std::size_t kMinAlignment = 16;  // of malloc on x86-64
// Between block and object where the alignment is larger: header, distance, and what keeps the sum a multiple
// of 16.
inline constexpr std::size_t kAlignedPrefix = 32;
// Whole blocks up to this size come from arenas. One more byte, and a region of its own costs less than it
// wastes.
inline constexpr std::size_t kLargestBlock = 256u << 10;

// KASAN's sizes (optimal_redzone in mm/kasan/generic.c up to Linux 6.0).
constexpr std::size_t right_redzone(std::size_t bytes) {
  return bytes <= 48      ? 16
         : bytes <= 96    ? 32
         : bytes <= 448   ? 64
         : bytes <= 3968  ? 128
         : bytes <= 16128 ? 256
         : bytes <= 32256 ? 512
         : bytes <= 64512 ? 1024
                          : 2048;
}

enum class State : std::uint8_t { kNone, kLive, kQuarantined };

// The header's word, in parts.
struct Facts {
  State state = State::kNone;
  bool is_large = false;
  AllocatorName by = AllocatorName::kNone;
  std::uint8_t alignment_log = 4;
  std::size_t bytes = 0;
  std::uint32_t tid = 0;  // arena blocks only
};

inline constexpr std::uint64_t kStateMask = 3;
inline constexpr unsigned kSizeShift = 12;
inline constexpr unsigned kTidShift = 42;
inline constexpr std::size_t kMaxArenaBytes = (std::size_t{1} << 30) - 1;

static_assert(kLargestBlock <= kMaxArenaBytes);
static_assert((std::uint32_t{1} << 22) == 4u << 20, "PID_MAX_LIMIT: a thread id fits in 22 bits");

constexpr std::uint64_t pack(const Facts& facts) {
  return static_cast<std::uint64_t>(facts.state) | std::uint64_t{facts.is_large} << 2 |
         static_cast<std::uint64_t>(facts.by) << 3 | std::uint64_t{facts.alignment_log} << 6 |
         std::uint64_t{facts.bytes} << kSizeShift | (facts.is_large ? 0 : std::uint64_t{facts.tid} << kTidShift);
}

constexpr Facts unpack(std::uint64_t word) {
  Facts facts;
  facts.state = static_cast<State>(word & kStateMask);
  facts.is_large = (word >> 2 & 1) != 0;
  facts.by = static_cast<AllocatorName>(word >> 3 & 7);
  facts.alignment_log = static_cast<std::uint8_t>(word >> 6 & 63);
  facts.bytes = word >> kSizeShift;
  if (!facts.is_large) {
    facts.bytes &= kMaxArenaBytes;
    facts.tid = static_cast<std::uint32_t>(word >> kTidShift);
  }
  return facts;
}

// Mixed into every check, so that a program cannot hold a valid header by chance or by copying one.
extern std::uint64_t g_header_secret;

inline std::uint32_t header_check(AppAddr object, std::uint64_t word, StackId stack) {
  // The multiplier is 2^64 over the golden ratio, as in the kernel's hash_64 (include/linux/hash.h).
  constexpr std::uint64_t kGolden = 0x61c8864680b583ebu;
  std::uint64_t x = (object.value ^ g_header_secret) * kGolden;
  x = (std::rotl(x, 32) ^ (word & ~kStateMask) ^ std::uint64_t{stack} << 32) * kGolden;
  return static_cast<std::uint32_t>(x >> 32);
}

struct Header {
  std::atomic<std::uint64_t> word;
  StackId stack;
  std::uint32_t check;
};

struct FreeRecord {
  std::uint64_t word;
  StackId stack;
  std::uint32_t tid;
};

static_assert(sizeof(Header) == kHeaderBytes && sizeof(FreeRecord) == 16);

inline Header& header_of(AppAddr object) {
  return *(object - kHeaderBytes).ptr<Header>();
}

inline FreeRecord& free_record_of(AppAddr object) {
  return *object.ptr<FreeRecord>();
}

inline std::uint64_t& distance_of(AppAddr object) {
  return *(object - kHeaderBytes - 8).ptr<std::uint64_t>();
}

// Bytes from block to object at most; the block must have that many more than the object and its redzone.
constexpr std::size_t prefix_bytes(std::size_t alignment) {
  return alignment <= kMinAlignment ? kHeaderBytes : alignment + kAlignedPrefix - kMinAlignment;
}

constexpr AppAddr object_in(AppAddr block, std::size_t alignment) {
  if (alignment <= kMinAlignment) return block + kHeaderBytes;
  return AppAddr(round_up(block.value + kAlignedPrefix, alignment));
}

inline AppAddr block_of(AppAddr object, const Facts& facts) {
  if (facts.alignment_log <= 4) return object - kHeaderBytes;
  return object - distance_of(object);
}

}  // namespace penumbra::heap
