// malloc and its relatives: every C name that takes or gives heap memory, libmimalloc's rarer ones included.
//
// glibc 2.36 is the model for what the standards leave open: realloc(p, 0) frees and returns null,
// aligned_alloc is memalign, which rounds a bad alignment up; sizes above PTRDIFF_MAX fail.
// malloc_usable_size is what was asked for: more would be redzone.
//
// zone: nomalloc
#include "allocator/heap/heap.h"
#include "runtime/base/config.h"
#include "runtime/base/raw_memory.h"
#include "runtime/preload/bootstrap.h"
#include "runtime/preload/heap_entries.h"
#include "runtime/preload/objects.h"

#include <errno.h>
#include <malloc.h>
#include <stddef.h>
#include <stdlib.h>

#include <algorithm>
#include <bit>

// Names without a declaration in glibc's headers: its own aliases, and what libmimalloc exports for other
// systems.
PENUMBRA_EXPORT void cfree(void* p);
PENUMBRA_EXPORT void vfree(void* p);
PENUMBRA_EXPORT std::size_t malloc_size(const void* p);
PENUMBRA_EXPORT std::size_t malloc_good_size(std::size_t bytes);
PENUMBRA_EXPORT void* reallocf(void* p, std::size_t bytes);
PENUMBRA_EXPORT int reallocarr(void* p, std::size_t count, std::size_t size);
PENUMBRA_EXPORT void* _aligned_malloc(std::size_t alignment, std::size_t bytes);
PENUMBRA_EXPORT int __posix_memalign(void** out, std::size_t alignment, std::size_t bytes);
PENUMBRA_EXPORT void* __libc_malloc(std::size_t bytes);
PENUMBRA_EXPORT void* __libc_calloc(std::size_t count, std::size_t size);
PENUMBRA_EXPORT void* __libc_realloc(void* p, std::size_t bytes);
PENUMBRA_EXPORT void __libc_free(void* p);
PENUMBRA_EXPORT void __libc_cfree(void* p);
PENUMBRA_EXPORT void* __libc_memalign(std::size_t alignment, std::size_t bytes);
PENUMBRA_EXPORT void* __libc_valloc(std::size_t bytes);
PENUMBRA_EXPORT void* __libc_pvalloc(std::size_t bytes);

namespace penumbra::preload {
namespace {

constexpr AllocatorName kMalloc = AllocatorName::kMalloc;

void* fail(int error) {
  errno = error;
  return nullptr;
}

// glibc's memalign: too large is EINVAL, small is malloc's, the rest is rounded up to a power of two.
void* obtain_aligned(std::size_t alignment, std::size_t bytes, const CodeContext& caller) {
  if (alignment > SIZE_MAX / 2 + 1) return fail(EINVAL);
  return obtain({.bytes = bytes, .alignment = std::bit_ceil(alignment < 16 ? 16 : alignment)}, caller);
}

void* obtain_zeroed(std::size_t count, std::size_t size, const CodeContext& caller) {
  std::size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return fail(ENOMEM);
  return obtain({.bytes = bytes, .zero = true}, caller);
}

void* obtain_pages(std::size_t bytes, const CodeContext& caller) {
  if (bytes > SIZE_MAX - kPageSize) return fail(ENOMEM);
  return obtain({.bytes = round_up(bytes, kPageSize), .alignment = kPageSize}, caller);
}

int obtain_posix(void** out, std::size_t alignment, std::size_t bytes, const CodeContext& caller) {
  if (!is_power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  const int saved = errno;  // posix_memalign returns its error
  void* const p = obtain({.bytes = bytes, .alignment = alignment < 16 ? 16 : alignment}, caller);
  errno = saved;
  if (p == nullptr) return ENOMEM;
  *out = p;
  return 0;
}

void* resize_array(void* p, std::size_t count, std::size_t size, const CodeContext& caller, const char* function) {
  std::size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return fail(ENOMEM);
  return resize(p, {.bytes = bytes}, OnZero::kFree, caller, function);
}

// What the next allocator must never see: blocks that were handed out before it was known.

void next_free(void* p) {
  if (!bootstrap_owns(p)) PENUMBRA_NEXT_OF(free)(p);
}

void* next_realloc(void* p, std::size_t bytes) {
  if (!bootstrap_owns(p)) return PENUMBRA_NEXT_OF(realloc)(p, bytes);
  void* const moved = PENUMBRA_NEXT_OF(malloc)(bytes);
  if (moved != nullptr) raw_copy(moved, p, std::min(bytes, bootstrap_bytes(p)));
  return moved;
}

std::size_t next_usable_size(void* p) {
  return bootstrap_owns(p) ? bootstrap_bytes(p) : PENUMBRA_NEXT_OF(malloc_usable_size)(p);
}

}  // namespace
}  // namespace penumbra::preload

using namespace penumbra;           // NOLINT: definitions of global names follow
using namespace penumbra::preload;  // NOLINT

PENUMBRA_EXPORT void* malloc(std::size_t bytes) {
  if (!is_ours()) return PENUMBRA_NEXT_OF(malloc)(bytes);
  return obtain({.bytes = bytes}, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT void* calloc(std::size_t count, std::size_t size) {
  if (!is_ours()) return PENUMBRA_NEXT_OF(calloc)(count, size);
  return obtain_zeroed(count, size, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT void* realloc(void* p, std::size_t bytes) {
  if (!is_ours()) return next_realloc(p, bytes);
  return resize(p, {.bytes = bytes}, OnZero::kFree, PENUMBRA_CALLER(), "realloc");
}

PENUMBRA_EXPORT void free(void* p) {
  if (!is_ours()) return next_free(p);
  release(p, kMalloc, PENUMBRA_CALLER(), "free");
}

PENUMBRA_EXPORT void* memalign(std::size_t alignment, std::size_t bytes) {
  if (!is_ours()) return PENUMBRA_NEXT_OF(memalign)(alignment, bytes);
  return obtain_aligned(alignment, bytes, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  if (!is_ours()) return PENUMBRA_NEXT_OF(aligned_alloc)(alignment, bytes);
  return obtain_aligned(alignment, bytes, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  if (!is_ours()) return PENUMBRA_NEXT_OF(posix_memalign)(out, alignment, bytes);
  return obtain_posix(out, alignment, bytes, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT void* valloc(std::size_t bytes) {
  if (!is_ours()) return PENUMBRA_NEXT_OF(valloc)(bytes);
  return obtain({.bytes = bytes, .alignment = kPageSize}, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT void* pvalloc(std::size_t bytes) {
  if (!is_ours()) return PENUMBRA_NEXT_OF(pvalloc)(bytes);
  return obtain_pages(bytes, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT std::size_t malloc_usable_size(void* p) {
  if (!is_ours()) return next_usable_size(p);
  return usable_bytes_asked(p, PENUMBRA_CALLER(), "malloc_usable_size");
}

PENUMBRA_EXPORT void* reallocarray(void* p, std::size_t count, std::size_t size) {
  if (!is_ours()) {
    std::size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? fail(ENOMEM) : next_realloc(p, bytes);
  }
  return resize_array(p, count, size, PENUMBRA_CALLER(), "reallocarray");
}

// From here on names that glibc does not have, so that "next" would be libmimalloc's, whose heap nobody asked
// for: when we stand aside they are made of the names above.

PENUMBRA_EXPORT void cfree(void* p) {
  if (!is_ours()) return free(p);
  release(p, kMalloc, PENUMBRA_CALLER(), "cfree");
}

PENUMBRA_EXPORT void vfree(void* p) {
  if (!is_ours()) return free(p);
  release(p, kMalloc, PENUMBRA_CALLER(), "vfree");
}

PENUMBRA_EXPORT std::size_t malloc_size(const void* p) {
  if (!is_ours()) return malloc_usable_size(const_cast<void*>(p));
  return usable_bytes(p);
}

// How much a request of so many bytes really gets: what it asks for.
PENUMBRA_EXPORT std::size_t malloc_good_size(std::size_t bytes) {
  return bytes;
}

PENUMBRA_EXPORT void* reallocf(void* p, std::size_t bytes) {
  void* const moved =
      is_ours() ? resize(p, {.bytes = bytes}, OnZero::kFree, PENUMBRA_CALLER(), "reallocf") : realloc(p, bytes);
  if (moved == nullptr && p != nullptr && bytes != 0) free(p);
  return moved;
}

// NetBSD's: `p` is the address of the pointer, which changes only on success; returns the error.
PENUMBRA_EXPORT int reallocarr(void* p, std::size_t count, std::size_t size) {
  if (p == nullptr) return EINVAL;
  auto** const pointer = static_cast<void**>(p);
  const int saved = errno;
  errno = 0;
  void* const moved = is_ours() ? resize_array(*pointer, count, size, PENUMBRA_CALLER(), "reallocarr")
                                : reallocarray(*pointer, count, size);
  const int error = errno;
  errno = saved;
  if (moved == nullptr && error != 0) return error;
  *pointer = moved;
  return 0;
}

PENUMBRA_EXPORT void* _aligned_malloc(std::size_t alignment, std::size_t bytes) {
  if (!is_ours()) return aligned_alloc(alignment, bytes);
  return obtain_aligned(alignment, bytes, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT int __posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  if (!is_ours()) return posix_memalign(out, alignment, bytes);
  return obtain_posix(out, alignment, bytes, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT void* __libc_malloc(std::size_t bytes) {
  if (!is_ours()) return malloc(bytes);
  return obtain({.bytes = bytes}, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT void* __libc_calloc(std::size_t count, std::size_t size) {
  if (!is_ours()) return calloc(count, size);
  return obtain_zeroed(count, size, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT void* __libc_realloc(void* p, std::size_t bytes) {
  if (!is_ours()) return realloc(p, bytes);
  return resize(p, {.bytes = bytes}, OnZero::kFree, PENUMBRA_CALLER(), "realloc");
}

PENUMBRA_EXPORT void __libc_free(void* p) {
  if (!is_ours()) return free(p);
  release(p, kMalloc, PENUMBRA_CALLER(), "free");
}

PENUMBRA_EXPORT void __libc_cfree(void* p) {
  if (!is_ours()) return free(p);
  release(p, kMalloc, PENUMBRA_CALLER(), "cfree");
}

PENUMBRA_EXPORT void* __libc_memalign(std::size_t alignment, std::size_t bytes) {
  if (!is_ours()) return memalign(alignment, bytes);
  return obtain_aligned(alignment, bytes, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT void* __libc_valloc(std::size_t bytes) {
  if (!is_ours()) return valloc(bytes);
  return obtain({.bytes = bytes, .alignment = kPageSize}, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT void* __libc_pvalloc(std::size_t bytes) {
  if (!is_ours()) return pvalloc(bytes);
  return obtain_pages(bytes, PENUMBRA_CALLER());
}

// Knobs and figures of glibc's heap. Ours has other ones (PENUMBRA_OPTIONS), so a setting succeeds without
// effect, nothing is given back early, and the figures are those of arenas and quarantine.

PENUMBRA_EXPORT int mallopt(int parameter, int value) {
  return is_ours() ? 1 : PENUMBRA_NEXT_OF(mallopt)(parameter, value);
}

PENUMBRA_EXPORT int malloc_trim(std::size_t pad) {
  return is_ours() ? 0 : PENUMBRA_NEXT_OF(malloc_trim)(pad);
}

PENUMBRA_EXPORT struct mallinfo2 mallinfo2(void) {
  if (!is_ours()) return PENUMBRA_NEXT_OF(mallinfo2)();
  const heap::Stats stats = heap::stats();
  struct mallinfo2 info = {};
  info.arena = stats.arena_bytes;
  info.ordblks = stats.arenas;
  info.fordblks = stats.quarantined_bytes;
  info.uordblks = stats.arena_bytes - stats.quarantined_bytes;
  return info;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

PENUMBRA_EXPORT struct mallinfo mallinfo(void) {
  if (!is_ours()) return PENUMBRA_NEXT_OF(mallinfo)();
  const heap::Stats stats = heap::stats();
  struct mallinfo info = {};
  info.arena = static_cast<int>(stats.arena_bytes);  // wraps, as glibc's does
  info.ordblks = static_cast<int>(stats.arenas);
  info.fordblks = static_cast<int>(stats.quarantined_bytes);
  info.uordblks = static_cast<int>(stats.arena_bytes - stats.quarantined_bytes);
  return info;
}

#pragma GCC diagnostic pop

// --- Our entries by names that nobody else can define --------------------------------------------------------------

// clang-format off
#define PENUMBRA_OWN(name)               \
  extern "C" void penumbra_own_##name(); \
  __asm__(".globl penumbra_own_" #name "\n.hidden penumbra_own_" #name "\n.set penumbra_own_" #name ", " #name);
#define PENUMBRA_HEAP_ENTRIES(X)                                                                                  \
  X(malloc)                                                                                                       \
  X(free)                                                                                                         \
  X(calloc) X(realloc) X(memalign) X(aligned_alloc) X(posix_memalign) X(valloc) X(pvalloc) X(cfree)               \
      X(malloc_usable_size) X(__libc_malloc) X(__libc_free) X(__libc_calloc) X(__libc_realloc) X(__libc_memalign) \
          X(__libc_valloc) X(__libc_pvalloc)
// clang-format on
PENUMBRA_HEAP_ENTRIES(PENUMBRA_OWN)

namespace penumbra::preload {

#define PENUMBRA_ENTRY(name) {#name, penumbra_own_##name},
constinit const HeapEntry kHeapEntries[kHeapEntryCount] = {PENUMBRA_HEAP_ENTRIES(PENUMBRA_ENTRY)};

}  // namespace penumbra::preload
