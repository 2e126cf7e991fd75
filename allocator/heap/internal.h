// What the parts of the heap share: the one heap of the process, and looking an object up.
//
// zone: nomalloc
#pragma once

#include "allocator/heap/arenas.h"
#include "allocator/heap/heap.h"
#include "allocator/heap/layout.h"
#include "allocator/heap/mimalloc_link.h"
#include "allocator/heap/quarantine.h"
#include "shadow/bytes.h"

namespace penumbra::heap {

struct Heap {
  Mimalloc mimalloc;
  AppRange span;
  Arenas arenas;
  Quarantine quarantine;
  std::size_t junk_bytes = 0;
};

extern Heap g_heap;

// As ASan's malloc_fill_byte: pointers made of it are not canonical, numbers made of it are implausible.
inline constexpr std::uint8_t kJunk = 0xbe;

inline std::uint8_t shadow_byte(AppAddr a) {
  return shadow::load_byte(a);
}

inline bool has_tag(AppAddr a, shadow::ShadowTag tag) {
  return shadow_byte(a) == static_cast<std::uint8_t>(tag);
}

// By the shadow alone: does an object of ours begin exactly here? True also for freed ones, until their
// memory is reused. Then the 16 bytes before it can be read.
inline bool object_begins_at(AppAddr a) {
  return a.value % kMinAlignment == 0 && a >= g_heap.span.begin + kHeaderBytes && a < g_heap.span.end &&
         has_tag(a - kHeaderBytes, shadow::ShadowTag::kHeapLeftRedzone) &&
         has_tag(a - kHeaderBytes / 2, shadow::ShadowTag::kHeapLeftRedzone) &&
         !has_tag(a, shadow::ShadowTag::kHeapLeftRedzone);
}

struct Found {
  FreeVerdict verdict = FreeVerdict::kInvalid;  // kFreed: live
  BlockState state = BlockState::kNone;
  std::uint64_t word = 0;  // as read; valid unless the verdict is kInvalid or kCorruptHeader
};

// Of an address where object_begins_at().
Found read_header(AppAddr object);
// Of any address.
Found look_up(AppAddr object);

void* allocate_large(const Request& request);
// Of an object whose header says so, and which the caller has claimed.
void free_large(AppAddr object, const Facts& facts, std::uint64_t claimed_word, StackId stack,
                const QuarantineBatch& batch);
// Of an object that leaves the quarantine.
void return_large(void* object);
// An address in no arena where no live object begins: was it a large object?
FreeVerdict judge_large(AppAddr object);
bool describe_large(AppAddr a, BlockInfo& info);

// From word and stacks to what reports want.
void fill_info(AppAddr object, const Found& found, BlockInfo& info);

}  // namespace penumbra::heap
