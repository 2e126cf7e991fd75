// The core that all exported allocation names share: where memory comes from now, and what a bad pointer
// means.
//
//     kBootstrap   init has not finished: the bootstrap arena
//     kOurs        the heap
//     kNext        we stand aside (or heap=0): whoever would have served the program without us
//
// The exported functions take their caller's context themselves, because only they know their own frame.
//
// zone: nomalloc
#pragma once

#include "runtime/base/address.h"
#include "runtime/base/export.h"
#include "runtime/base/fault.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace penumbra::preload {

enum class Source : std::uint8_t { kBootstrap, kOurs, kNext };

extern std::atomic<Source> g_source;

// Set once by runtime/init when everything below is up, or when it is known that it will not be.
void init(Source source);
// True where the heap serves; brings the runtime up if nobody did.
bool is_ours_slowly();

inline bool is_ours() {
  return g_source.load(std::memory_order_relaxed) == Source::kOurs ? true : is_ours_slowly();
}

struct Request {
  std::size_t bytes = 0;
  std::size_t alignment = 16;  // a power of two
  bool zero = false;
  AllocatorName by = AllocatorName::kMalloc;
};

// From the heap or the bootstrap arena. Null with ENOMEM. Not for kNext.
void* obtain(const Request& request, const CodeContext& caller);
// Frees what obtain() gave, and reports what it did not. `by` kNone accepts every allocator.
void release(void* object, AllocatorName by, const CodeContext& caller, const char* function);
// Checks a sized or aligned delete before the release. bytes ~0: not said. alignment 0: not said.
void check_sized_delete(void* object, std::size_t bytes, std::size_t alignment, const CodeContext& caller,
                        const char* function);
// Bytes that the program may use: as requested. 0 where no live object of ours begins.
std::size_t usable_bytes(const void* object);
// The same for a program that asks; reports the question if the object is freed (KASAN: ksize() of a freed object).
std::size_t usable_bytes_asked(const void* object, const CodeContext& caller, const char* function);

enum class OnZero : std::uint8_t { kFree, kKeep };  // realloc(p, 0): glibc frees; mimalloc gives an empty object

// Moves always: a stale pointer to the old place then meets poison. `zero`: bytes beyond the old size read 0.
void* resize(void* object, const Request& request, OnZero on_zero, const CodeContext& caller, const char* function);

// A later definition of a name in the search order, found on first use. For kNext, where the program's own
// allocator answers.
inline void* next_definition(std::atomic<void*>& slot, const char* name) {
  void* function = slot.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = PENUMBRA_NEXT(name);
    slot.store(function, std::memory_order_relaxed);
  }
  return function;
}

// The function that stands behind ours in the search order.
#define PENUMBRA_NEXT_OF(function)                                \
  (reinterpret_cast<decltype(&function)>([] {                     \
    static constinit std::atomic<void*> slot{nullptr};            \
    return ::penumbra::preload::next_definition(slot, #function); \
  }()))

}  // namespace penumbra::preload
