// The public mi_* names: a program linked with libmimalloc shares it with us, so whatever it gets from there
// or gives back there must be ours as well (process ruling 15).
//
// Sizes, alignments and failures follow mimalloc 2.0.9, whose realloc(p, 0) keeps an object of no bytes.
// Heaps of the program's own (mi_heap_new) stay mimalloc's, but hold nothing of the program's: their blocks
// come from the one heap here. So mi_heap_destroy frees none of them, and mi_heap_visit_blocks says that it
// cannot. An alignment at an offset that is no multiple of it is refused with null.
//
// zone: nomalloc
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#pragma GCC visibility push(default)
#include <mimalloc.h>
#pragma GCC visibility pop

#include "allocator/heap/heap.h"
#include "runtime/base/config.h"
#include "runtime/base/raw_memory.h"
#include "runtime/preload/bootstrap.h"
#include "runtime/preload/objects.h"
#include "runtime/preload/operators.h"

#include <algorithm>

namespace penumbra::preload {
namespace {

// Such a request always fails: what a product that does not fit becomes.
constexpr std::size_t kTooMuch = SIZE_MAX;
constexpr auto kMalloc = AllocatorName::kMalloc;
// mimalloc's new is freed with mi_free and with delete alike.
constexpr auto kAny = AllocatorName::kNone;

std::size_t times(std::size_t count, std::size_t size) {
  std::size_t bytes;
  return __builtin_mul_overflow(count, size, &bytes) ? kTooMuch : bytes;
}

bool is_heap_memory(const void* p) {
  return bootstrap_owns(p) || heap::owns(AppAddr(p));
}

void* get(std::size_t bytes, const CodeContext& caller) {
  return obtain({.bytes = bytes}, caller);
}

void* get_zeroed(std::size_t bytes, const CodeContext& caller) {
  return obtain({.bytes = bytes, .zero = true}, caller);
}

void* grow(void* p, const Request& request, const CodeContext& caller) {
  return resize(p, request, OnZero::kKeep, caller, "mi_realloc");
}

void* grow_or_free(void* p, std::size_t bytes, const CodeContext& caller) {
  void* const moved = grow(p, {.bytes = bytes}, caller);
  if (moved == nullptr) release(p, kMalloc, caller, "mi_reallocf");
  return moved;
}

int grow_array(void* p, std::size_t bytes, const CodeContext& caller) {
  if (p == nullptr) return EINVAL;
  auto** const pointer = static_cast<void**>(p);
  void* const moved = grow(*pointer, {.bytes = bytes}, caller);
  if (moved == nullptr) return ENOMEM;
  *pointer = moved;
  return 0;
}

void* expand_or_enomem(void* p, std::size_t bytes) {
  if (bytes <= usable_bytes(p)) return p;
  errno = ENOMEM;
  return nullptr;
}

bool can_align(std::size_t alignment, std::size_t offset) {
  return is_power_of_two(alignment) && offset % alignment == 0;
}

void* get_aligned(std::size_t bytes, std::size_t alignment, std::size_t offset, bool zero,
                  const CodeContext& caller) {
  if (!can_align(alignment, offset)) return nullptr;
  return obtain({.bytes = bytes, .alignment = std::max<std::size_t>(alignment, 16), .zero = zero, .by = kAny},
                caller);
}

void* grow_aligned(void* p, std::size_t bytes, std::size_t alignment, std::size_t offset, bool zero,
                   const CodeContext& caller) {
  if (!can_align(alignment, offset)) return nullptr;
  return grow(p, {.bytes = bytes, .alignment = std::max<std::size_t>(alignment, 16), .zero = zero, .by = kAny},
              caller);
}

int get_posix(void** out, std::size_t alignment, std::size_t bytes, const CodeContext& caller) {
  if (out == nullptr || alignment % sizeof(void*) != 0 || !is_power_of_two(alignment)) return EINVAL;
  void* const p = get_aligned(bytes, alignment, 0, false, caller);
  if (p == nullptr && bytes != 0) return ENOMEM;
  *out = p;
  return 0;
}

void* get_new_aligned(std::size_t bytes, std::size_t alignment, const CodeContext& caller) {
  if (!is_power_of_two(alignment)) throw_bad_alloc(caller);
  return obtain_or_throw({.bytes = bytes, .alignment = std::max<std::size_t>(alignment, 16), .by = kAny}, caller);
}

void* grow_or_throw(void* p, std::size_t bytes, const CodeContext& caller) {
  if (void* const moved = grow(p, {.bytes = bytes, .by = kAny}, caller)) return moved;
  void* const moved = obtain_or_throw({.bytes = bytes, .by = kAny}, caller);
  raw_copy(moved, p, std::min(bytes, usable_bytes(p)));
  release(p, kAny, caller, "mi_new_realloc");
  return moved;
}

char* duplicate(const char* text, std::size_t most, const CodeContext& caller) {
  if (text == nullptr) return nullptr;
  std::size_t length = 0;
  while (length < most && text[length] != '\0') ++length;
  auto* const copy = static_cast<char*>(get(length + 1, caller));
  if (copy == nullptr) return nullptr;
  raw_copy(copy, text, length);
  copy[length] = '\0';
  return copy;
}

unsigned short* duplicate_wide(const unsigned short* text, const CodeContext& caller) {
  if (text == nullptr) return nullptr;
  std::size_t length = 0;
  while (text[length] != 0) ++length;
  const std::size_t bytes = (length + 1) * sizeof *text;
  auto* const copy = static_cast<unsigned short*>(get(bytes, caller));
  if (copy != nullptr) raw_copy(copy, text, bytes);
  return copy;
}

int duplicate_environment(char** out, std::size_t* size, const char* name, const CodeContext& caller) {
  if (out == nullptr || name == nullptr) return EINVAL;
  if (size != nullptr) *size = 0;
  const char* const value = ::getenv(name);
  *out = value != nullptr ? duplicate(value, SIZE_MAX, caller) : nullptr;
  if (value == nullptr) return 0;
  if (*out == nullptr) return ENOMEM;
  if (size != nullptr) *size = raw_length(*out);
  return 0;
}

// What bind_mimalloc() has set, the program may not change.
bool may_set(mi_option_t option) {
  return option != mi_option_limit_os_alloc && option != mi_option_reserve_os_memory &&
         option != mi_option_reserve_huge_os_pages;
}

}  // namespace
}  // namespace penumbra::preload

using namespace penumbra;           // NOLINT: definitions of global names follow
using namespace penumbra::preload;  // NOLINT

// One name: its parameters, the arguments that hand them on when libmimalloc answers, and what we do with
// `caller`.
// `except` is what mimalloc.h says: clang++ wants the same.
#define PENUMBRA_MI(result, name, parameters, arguments, except, ...) \
  PENUMBRA_EXPORT result name parameters except {                     \
    if (!is_ours()) return PENUMBRA_NEXT_OF(name) arguments;          \
    const CodeContext caller = PENUMBRA_CALLER();                     \
    __VA_ARGS__                                                       \
  }

// Plain.
PENUMBRA_MI(void*, mi_malloc, (std::size_t bytes), (bytes), noexcept, { return get(bytes, caller); })
PENUMBRA_MI(void*, mi_heap_malloc, (mi_heap_t * heap, std::size_t bytes), (heap, bytes), noexcept, {
  (void)heap;
  return get(bytes, caller);
})
PENUMBRA_MI(void*, mi_zalloc, (std::size_t bytes), (bytes), noexcept, { return get_zeroed(bytes, caller); })
PENUMBRA_MI(void*, mi_heap_zalloc, (mi_heap_t * heap, std::size_t bytes), (heap, bytes), noexcept, {
  (void)heap;
  return get_zeroed(bytes, caller);
})
PENUMBRA_MI(void*, mi_malloc_small, (std::size_t bytes), (bytes), noexcept, { return get(bytes, caller); })
PENUMBRA_MI(void*, mi_heap_malloc_small, (mi_heap_t * heap, std::size_t bytes), (heap, bytes), noexcept, {
  (void)heap;
  return get(bytes, caller);
})
PENUMBRA_MI(void*, mi_zalloc_small, (std::size_t bytes), (bytes), noexcept, { return get_zeroed(bytes, caller); })
PENUMBRA_MI(void*, mi_calloc, (std::size_t count, std::size_t size), (count, size), noexcept,
            { return get_zeroed(times(count, size), caller); })
PENUMBRA_MI(void*, mi_heap_calloc, (mi_heap_t * heap, std::size_t count, std::size_t size), (heap, count, size),
            noexcept, {
              (void)heap;
              return get_zeroed(times(count, size), caller);
            })
PENUMBRA_MI(void*, mi_mallocn, (std::size_t count, std::size_t size), (count, size), noexcept,
            { return get(times(count, size), caller); })
PENUMBRA_MI(void*, mi_heap_mallocn, (mi_heap_t * heap, std::size_t count, std::size_t size), (heap, count, size),
            noexcept, {
              (void)heap;
              return get(times(count, size), caller);
            })
PENUMBRA_MI(void*, mi_realloc, (void* p, std::size_t bytes), (p, bytes), noexcept,
            { return grow(p, {.bytes = bytes}, caller); })
PENUMBRA_MI(void*, mi_heap_realloc, (mi_heap_t * heap, void* p, std::size_t bytes), (heap, p, bytes), noexcept, {
  (void)heap;
  return grow(p, {.bytes = bytes}, caller);
})
PENUMBRA_MI(void*, mi_reallocn, (void* p, std::size_t count, std::size_t size), (p, count, size), noexcept,
            { return grow(p, {.bytes = times(count, size)}, caller); })
PENUMBRA_MI(void*, mi_heap_reallocn, (mi_heap_t * heap, void* p, std::size_t count, std::size_t size),
            (heap, p, count, size), noexcept, {
              (void)heap;
              return grow(p, {.bytes = times(count, size)}, caller);
            })
PENUMBRA_MI(void*, mi_reallocf, (void* p, std::size_t bytes), (p, bytes), noexcept,
            { return grow_or_free(p, bytes, caller); })
PENUMBRA_MI(void*, mi_heap_reallocf, (mi_heap_t * heap, void* p, std::size_t bytes), (heap, p, bytes), noexcept, {
  (void)heap;
  return grow_or_free(p, bytes, caller);
})
PENUMBRA_MI(void*, mi_rezalloc, (void* p, std::size_t bytes), (p, bytes), noexcept,
            { return grow(p, {.bytes = bytes, .zero = true}, caller); })
PENUMBRA_MI(void*, mi_heap_rezalloc, (mi_heap_t * heap, void* p, std::size_t bytes), (heap, p, bytes), noexcept, {
  (void)heap;
  return grow(p, {.bytes = bytes, .zero = true}, caller);
})
PENUMBRA_MI(void*, mi_recalloc, (void* p, std::size_t count, std::size_t size), (p, count, size), noexcept,
            { return grow(p, {.bytes = times(count, size), .zero = true}, caller); })
PENUMBRA_MI(void*, mi_heap_recalloc, (mi_heap_t * heap, void* p, std::size_t count, std::size_t size),
            (heap, p, count, size), noexcept, {
              (void)heap;
              return grow(p, {.bytes = times(count, size), .zero = true}, caller);
            })
PENUMBRA_MI(void*, mi_reallocarray, (void* p, std::size_t count, std::size_t size), (p, count, size), noexcept,
            { return grow(p, {.bytes = times(count, size)}, caller); })
PENUMBRA_MI(int, mi_reallocarr, (void* p, std::size_t count, std::size_t size), (p, count, size), noexcept,
            { return grow_array(p, times(count, size), caller); })

// In place: a block never grows beyond what was asked for, because that is redzone.
PENUMBRA_MI(void*, mi_expand, (void* p, std::size_t bytes), (p, bytes), noexcept, {
  (void)caller;
  return bytes <= usable_bytes(p) ? p : nullptr;
})
PENUMBRA_MI(void*, mi__expand, (void* p, std::size_t bytes), (p, bytes), noexcept, {
  (void)caller;
  return expand_or_enomem(p, bytes);
})

// Frees.
PENUMBRA_MI(void, mi_free, (void* p), (p), noexcept, { release(p, kMalloc, caller, "mi_free"); })
PENUMBRA_MI(void, mi_cfree, (void* p), (p), noexcept, {
  if (is_heap_memory(p)) release(p, kMalloc, caller, "mi_cfree");
})
PENUMBRA_MI(void, mi_free_size, (void* p, std::size_t bytes), (p, bytes), noexcept, {
  (void)bytes;
  release(p, AllocatorName::kNone, caller, "mi_free_size");
})
PENUMBRA_MI(void, mi_free_size_aligned, (void* p, std::size_t bytes, std::size_t alignment), (p, bytes, alignment),
            noexcept, {
              (void)bytes;
              (void)alignment;
              release(p, AllocatorName::kNone, caller, "mi_free_size_aligned");
            })
PENUMBRA_MI(void, mi_free_aligned, (void* p, std::size_t alignment), (p, alignment), noexcept, {
  (void)alignment;
  release(p, AllocatorName::kNone, caller, "mi_free_aligned");
})

// Sizes.
PENUMBRA_MI(std::size_t, mi_usable_size, (const void* p), (p), noexcept, {
  (void)caller;
  return usable_bytes(p);
})
PENUMBRA_MI(std::size_t, mi_malloc_size, (const void* p), (p), noexcept, {
  (void)caller;
  return usable_bytes(p);
})
PENUMBRA_MI(std::size_t, mi_malloc_usable_size, (const void* p), (p), noexcept, {
  (void)caller;
  return usable_bytes(p);
})
PENUMBRA_MI(std::size_t, mi_good_size, (std::size_t bytes), (bytes), noexcept, {
  (void)caller;
  return bytes;
})
PENUMBRA_MI(std::size_t, mi_malloc_good_size, (std::size_t bytes), (bytes), noexcept, {
  (void)caller;
  return bytes;
})

// Aligned. `offset` is the place inside the block that shall be aligned.
PENUMBRA_MI(void*, mi_malloc_aligned, (std::size_t bytes, std::size_t alignment), (bytes, alignment), noexcept,
            { return get_aligned(bytes, alignment, 0, false, caller); })
PENUMBRA_MI(void*, mi_heap_malloc_aligned, (mi_heap_t * heap, std::size_t bytes, std::size_t alignment),
            (heap, bytes, alignment), noexcept, {
              (void)heap;
              return get_aligned(bytes, alignment, 0, false, caller);
            })
PENUMBRA_MI(void*, mi_malloc_aligned_at, (std::size_t bytes, std::size_t alignment, std::size_t offset),
            (bytes, alignment, offset), noexcept, { return get_aligned(bytes, alignment, offset, false, caller); })
PENUMBRA_MI(void*, mi_heap_malloc_aligned_at,
            (mi_heap_t * heap, std::size_t bytes, std::size_t alignment, std::size_t offset),
            (heap, bytes, alignment, offset), noexcept, {
              (void)heap;
              return get_aligned(bytes, alignment, offset, false, caller);
            })
PENUMBRA_MI(void*, mi_zalloc_aligned, (std::size_t bytes, std::size_t alignment), (bytes, alignment), noexcept,
            { return get_aligned(bytes, alignment, 0, true, caller); })
PENUMBRA_MI(void*, mi_heap_zalloc_aligned, (mi_heap_t * heap, std::size_t bytes, std::size_t alignment),
            (heap, bytes, alignment), noexcept, {
              (void)heap;
              return get_aligned(bytes, alignment, 0, true, caller);
            })
PENUMBRA_MI(void*, mi_zalloc_aligned_at, (std::size_t bytes, std::size_t alignment, std::size_t offset),
            (bytes, alignment, offset), noexcept, { return get_aligned(bytes, alignment, offset, true, caller); })
PENUMBRA_MI(void*, mi_heap_zalloc_aligned_at,
            (mi_heap_t * heap, std::size_t bytes, std::size_t alignment, std::size_t offset),
            (heap, bytes, alignment, offset), noexcept, {
              (void)heap;
              return get_aligned(bytes, alignment, offset, true, caller);
            })
PENUMBRA_MI(void*, mi_calloc_aligned, (std::size_t count, std::size_t size, std::size_t alignment),
            (count, size, alignment), noexcept,
            { return get_aligned(times(count, size), alignment, 0, true, caller); })
PENUMBRA_MI(void*, mi_heap_calloc_aligned,
            (mi_heap_t * heap, std::size_t count, std::size_t size, std::size_t alignment),
            (heap, count, size, alignment), noexcept, {
              (void)heap;
              return get_aligned(times(count, size), alignment, 0, true, caller);
            })
PENUMBRA_MI(void*, mi_calloc_aligned_at,
            (std::size_t count, std::size_t size, std::size_t alignment, std::size_t offset),
            (count, size, alignment, offset), noexcept,
            { return get_aligned(times(count, size), alignment, offset, true, caller); })
PENUMBRA_MI(void*, mi_heap_calloc_aligned_at,
            (mi_heap_t * heap, std::size_t count, std::size_t size, std::size_t alignment, std::size_t offset),
            (heap, count, size, alignment, offset), noexcept, {
              (void)heap;
              return get_aligned(times(count, size), alignment, offset, true, caller);
            })
PENUMBRA_MI(void*, mi_realloc_aligned, (void* p, std::size_t bytes, std::size_t alignment), (p, bytes, alignment),
            noexcept, { return grow_aligned(p, bytes, alignment, 0, false, caller); })
PENUMBRA_MI(void*, mi_heap_realloc_aligned, (mi_heap_t * heap, void* p, std::size_t bytes, std::size_t alignment),
            (heap, p, bytes, alignment), noexcept, {
              (void)heap;
              return grow_aligned(p, bytes, alignment, 0, false, caller);
            })
PENUMBRA_MI(void*, mi_realloc_aligned_at, (void* p, std::size_t bytes, std::size_t alignment, std::size_t offset),
            (p, bytes, alignment, offset), noexcept,
            { return grow_aligned(p, bytes, alignment, offset, false, caller); })
PENUMBRA_MI(void*, mi_heap_realloc_aligned_at,
            (mi_heap_t * heap, void* p, std::size_t bytes, std::size_t alignment, std::size_t offset),
            (heap, p, bytes, alignment, offset), noexcept, {
              (void)heap;
              return grow_aligned(p, bytes, alignment, offset, false, caller);
            })
PENUMBRA_MI(void*, mi_rezalloc_aligned, (void* p, std::size_t bytes, std::size_t alignment), (p, bytes, alignment),
            noexcept, { return grow_aligned(p, bytes, alignment, 0, true, caller); })
PENUMBRA_MI(void*, mi_heap_rezalloc_aligned, (mi_heap_t * heap, void* p, std::size_t bytes, std::size_t alignment),
            (heap, p, bytes, alignment), noexcept, {
              (void)heap;
              return grow_aligned(p, bytes, alignment, 0, true, caller);
            })
PENUMBRA_MI(void*, mi_rezalloc_aligned_at, (void* p, std::size_t bytes, std::size_t alignment, std::size_t offset),
            (p, bytes, alignment, offset), noexcept,
            { return grow_aligned(p, bytes, alignment, offset, true, caller); })
PENUMBRA_MI(void*, mi_heap_rezalloc_aligned_at,
            (mi_heap_t * heap, void* p, std::size_t bytes, std::size_t alignment, std::size_t offset),
            (heap, p, bytes, alignment, offset), noexcept, {
              (void)heap;
              return grow_aligned(p, bytes, alignment, offset, true, caller);
            })
PENUMBRA_MI(void*, mi_recalloc_aligned, (void* p, std::size_t count, std::size_t size, std::size_t alignment),
            (p, count, size, alignment), noexcept,
            { return grow_aligned(p, times(count, size), alignment, 0, true, caller); })
PENUMBRA_MI(void*, mi_heap_recalloc_aligned,
            (mi_heap_t * heap, void* p, std::size_t count, std::size_t size, std::size_t alignment),
            (heap, p, count, size, alignment), noexcept, {
              (void)heap;
              return grow_aligned(p, times(count, size), alignment, 0, true, caller);
            })
PENUMBRA_MI(void*, mi_recalloc_aligned_at,
            (void* p, std::size_t count, std::size_t size, std::size_t alignment, std::size_t offset),
            (p, count, size, alignment, offset), noexcept,
            { return grow_aligned(p, times(count, size), alignment, offset, true, caller); })
PENUMBRA_MI(void*, mi_heap_recalloc_aligned_at,
            (mi_heap_t * heap, void* p, std::size_t count, std::size_t size, std::size_t alignment,
             std::size_t offset),
            (heap, p, count, size, alignment, offset), noexcept, {
              (void)heap;
              return grow_aligned(p, times(count, size), alignment, offset, true, caller);
            })
PENUMBRA_MI(void*, mi_aligned_recalloc, (void* p, std::size_t count, std::size_t size, std::size_t alignment),
            (p, count, size, alignment), noexcept,
            { return grow_aligned(p, times(count, size), alignment, 0, true, caller); })
PENUMBRA_MI(void*, mi_aligned_offset_recalloc,
            (void* p, std::size_t count, std::size_t size, std::size_t alignment, std::size_t offset),
            (p, count, size, alignment, offset), noexcept,
            { return grow_aligned(p, times(count, size), alignment, offset, true, caller); })
PENUMBRA_MI(void*, mi_aligned_alloc, (std::size_t alignment, std::size_t bytes), (alignment, bytes), noexcept,
            { return get_aligned(bytes, alignment, 0, false, caller); })
PENUMBRA_MI(void*, mi_memalign, (std::size_t alignment, std::size_t bytes), (alignment, bytes), noexcept,
            { return get_aligned(bytes, alignment, 0, false, caller); })
PENUMBRA_MI(int, mi_posix_memalign, (void** out, std::size_t alignment, std::size_t bytes), (out, alignment, bytes),
            noexcept, { return get_posix(out, alignment, bytes, caller); })
PENUMBRA_MI(void*, mi_valloc, (std::size_t bytes), (bytes), noexcept,
            { return get_aligned(bytes, kPageSize, 0, false, caller); })
PENUMBRA_MI(void*, mi_pvalloc, (std::size_t bytes), (bytes), noexcept, {
  return get_aligned(bytes > kTooMuch - kPageSize ? kTooMuch : round_up(bytes, kPageSize), kPageSize, 0, false,
                     caller);
})

// C++ semantics: the new_handler, std::bad_alloc.
PENUMBRA_MI(void*, mi_new, (std::size_t bytes), (bytes), ,
            { return obtain_or_throw({.bytes = bytes, .by = kAny}, caller); })
PENUMBRA_MI(void*, mi_new_aligned, (std::size_t bytes, std::size_t alignment), (bytes, alignment), ,
            { return get_new_aligned(bytes, alignment, caller); })
PENUMBRA_MI(void*, mi_new_nothrow, (std::size_t bytes), (bytes), noexcept,
            { return obtain({.bytes = bytes, .by = kAny}, caller); })
PENUMBRA_MI(void*, mi_new_aligned_nothrow, (std::size_t bytes, std::size_t alignment), (bytes, alignment), noexcept,
            { return get_aligned(bytes, alignment, 0, false, caller); })
PENUMBRA_MI(void*, mi_new_n, (std::size_t count, std::size_t size), (count, size), ,
            { return obtain_or_throw({.bytes = times(count, size), .by = kAny}, caller); })
PENUMBRA_MI(void*, mi_heap_alloc_new, (mi_heap_t * heap, std::size_t bytes), (heap, bytes), , {
  (void)heap;
  return obtain_or_throw({.bytes = bytes, .by = kAny}, caller);
})
PENUMBRA_MI(void*, mi_heap_alloc_new_n, (mi_heap_t * heap, std::size_t count, std::size_t size), (heap, count, size),
            , {
              (void)heap;
              return obtain_or_throw({.bytes = times(count, size), .by = kAny}, caller);
            })
PENUMBRA_MI(void*, mi_new_realloc, (void* p, std::size_t bytes), (p, bytes), ,
            { return grow_or_throw(p, bytes, caller); })
PENUMBRA_MI(void*, mi_new_reallocn, (void* p, std::size_t count, std::size_t size), (p, count, size), ,
            { return grow_or_throw(p, times(count, size), caller); })

// Texts.
PENUMBRA_MI(char*, mi_strdup, (const char* text), (text), noexcept, { return duplicate(text, SIZE_MAX, caller); })
PENUMBRA_MI(char*, mi_heap_strdup, (mi_heap_t * heap, const char* text), (heap, text), noexcept, {
  (void)heap;
  return duplicate(text, SIZE_MAX, caller);
})
PENUMBRA_MI(char*, mi_strndup, (const char* text, std::size_t length), (text, length), noexcept,
            { return duplicate(text, length, caller); })
PENUMBRA_MI(char*, mi_heap_strndup, (mi_heap_t * heap, const char* text, std::size_t length), (heap, text, length),
            noexcept, {
              (void)heap;
              return duplicate(text, length, caller);
            })
PENUMBRA_MI(char*, mi_realpath, (const char* name, char* resolved), (name, resolved), noexcept, {
  (void)caller;
  return PENUMBRA_NEXT_OF(realpath)(name, resolved);
})
PENUMBRA_MI(char*, mi_heap_realpath, (mi_heap_t * heap, const char* name, char* resolved), (heap, name, resolved),
            noexcept, {
              (void)heap;
              (void)caller;
              return PENUMBRA_NEXT_OF(realpath)(name, resolved);
            })
PENUMBRA_MI(unsigned char*, mi_mbsdup, (const unsigned char* text), (text), noexcept, {
  return reinterpret_cast<unsigned char*>(duplicate(reinterpret_cast<const char*>(text), SIZE_MAX, caller));
})
PENUMBRA_MI(unsigned short*, mi_wcsdup, (const unsigned short* text), (text), noexcept,
            { return duplicate_wide(text, caller); })
PENUMBRA_MI(int, mi_dupenv_s, (char** out, std::size_t* size, const char* name), (out, size, name), noexcept,
            { return duplicate_environment(out, size, name, caller); })
PENUMBRA_MI(int, mi_wdupenv_s, (unsigned short** out, std::size_t* size, const unsigned short* name),
            (out, size, name), noexcept, {
              (void)caller;
              (void)name;
              if (out == nullptr) return EINVAL;
              if (size != nullptr) *size = 0;
              *out = nullptr;
              return EINVAL;  // there are no wide environments outside Windows
            })

// Questions.
PENUMBRA_MI(bool, mi_is_in_heap_region, (const void* p), (p), noexcept, {
  (void)caller;
  return is_heap_memory(p);
})
PENUMBRA_MI(bool, mi_check_owned, (const void* p), (p), , {
  (void)caller;
  return is_heap_memory(p);
})
PENUMBRA_MI(bool, mi_heap_check_owned, (mi_heap_t * heap, const void* p), (heap, p), , {
  (void)heap;
  (void)caller;
  return is_heap_memory(p);
})
PENUMBRA_MI(bool, mi_heap_contains_block, (mi_heap_t * heap, const void* p), (heap, p), , {
  (void)heap;
  (void)caller;
  return is_heap_memory(p);
})
PENUMBRA_MI(bool, mi_heap_visit_blocks, (const mi_heap_t* heap, bool all, mi_block_visit_fun* visitor, void* arg),
            (heap, all, visitor, arg), , {
              (void)heap;
              (void)caller;
              (void)all;
              (void)visitor;
              (void)arg;
              return false;
            })

// Memory and options that would make mimalloc use what is not ours: accepted, without effect.
PENUMBRA_MI(bool, mi_manage_os_memory,
            (void* start, std::size_t bytes, bool committed, bool large, bool zero, int node),
            (start, bytes, committed, large, zero, node), noexcept, {
              (void)caller;
              (void)start;
              (void)bytes;
              (void)committed;
              (void)large;
              (void)zero;
              (void)node;
              return true;
            })
PENUMBRA_MI(int, mi_reserve_os_memory, (std::size_t bytes, bool commit, bool large), (bytes, commit, large), noexcept,
            {
              (void)caller;
              (void)bytes;
              (void)commit;
              (void)large;
              return 0;
            })
PENUMBRA_MI(int, mi_reserve_huge_os_pages_at, (std::size_t pages, int node, std::size_t timeout),
            (pages, node, timeout), noexcept, {
              (void)caller;
              (void)pages;
              (void)node;
              (void)timeout;
              return 0;
            })
PENUMBRA_MI(int, mi_reserve_huge_os_pages_interleave, (std::size_t pages, std::size_t nodes, std::size_t timeout),
            (pages, nodes, timeout), noexcept, {
              (void)caller;
              (void)pages;
              (void)nodes;
              (void)timeout;
              return 0;
            })
PENUMBRA_MI(void, mi_option_set, (mi_option_t option, long value), (option, value), , {
  (void)caller;
  if (may_set(option)) PENUMBRA_NEXT_OF(mi_option_set)(option, value);
})
PENUMBRA_MI(void, mi_option_set_enabled, (mi_option_t option, bool enable), (option, enable), , {
  (void)caller;
  if (may_set(option)) PENUMBRA_NEXT_OF(mi_option_set_enabled)(option, enable);
})
PENUMBRA_MI(void, mi_option_enable, (mi_option_t option), (option), , {
  (void)caller;
  if (may_set(option)) PENUMBRA_NEXT_OF(mi_option_enable)(option);
})
PENUMBRA_MI(void, mi_option_disable, (mi_option_t option), (option), , {
  (void)caller;
  if (may_set(option)) PENUMBRA_NEXT_OF(mi_option_disable)(option);
})
