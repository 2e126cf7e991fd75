// What the C standard and glibc promise about malloc and its relatives, each promise by itself.
//
// STDOUT: kept
#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Sizes through volatile: the compiler must not decide.
static volatile size_t huge = PTRDIFF_MAX;
static volatile size_t most = SIZE_MAX;
static volatile size_t zero = 0;

#define FAILS_WITH(error, call) (errno = 0, (call) == NULL && errno == (error))

int main(void) {
  // Too much.
  assert(FAILS_WITH(ENOMEM, malloc(huge)));
  assert(FAILS_WITH(ENOMEM, malloc(huge + 1)));
  assert(FAILS_WITH(ENOMEM, malloc(most)));
  assert(FAILS_WITH(ENOMEM, calloc(huge, 3)));
  assert(FAILS_WITH(ENOMEM, calloc(most, most)));
  assert(FAILS_WITH(ENOMEM, reallocarray(NULL, most, 2)));
  assert(FAILS_WITH(ENOMEM, pvalloc(most)));
  assert(FAILS_WITH(ENOMEM, valloc(huge)));
  assert(FAILS_WITH(ENOMEM, memalign(64, huge)));

  // Nothing: a block of its own that can be freed.
  char* a = malloc(zero);
  char* b = malloc(zero);
  assert(a != NULL && b != NULL && a != b);
  free(a);
  free(b);
  free(NULL);
  free(calloc(zero, 8));

  // Zeroed, also after reuse.
  for (int i = 0; i < 3000; ++i) {
    unsigned char* p = calloc(17, 3);
    for (int j = 0; j < 51; ++j) assert(p[j] == 0);
    memset(p, 0x77, 51);
    free(p);
  }

  // Aligned.
  for (size_t alignment = 1; alignment <= 1 << 20; alignment *= 2) {
    void* p = memalign(alignment, 100);
    assert(p != NULL && (uintptr_t)p % alignment == 0 && (uintptr_t)p % 16 == 0);
    free(p);
    p = aligned_alloc(alignment, alignment);
    assert(p != NULL && (uintptr_t)p % alignment == 0);
    free(p);
  }
  void* p = memalign(24, 10);  // rounded up, as glibc does
  assert(p != NULL && (uintptr_t)p % 32 == 0);
  free(p);
  assert(FAILS_WITH(EINVAL, memalign(most / 2 + 2, 1)));
  void* untouched = &zero;
  errno = 5;
  assert(posix_memalign(&untouched, 24, 10) == EINVAL && untouched == &zero);
  assert(posix_memalign(&untouched, 4, 10) == EINVAL && untouched == &zero);
  assert(posix_memalign(&untouched, 0, 10) == EINVAL && untouched == &zero);
  assert(posix_memalign(&untouched, 64, huge) == ENOMEM && untouched == &zero);
  assert(errno == 5);
  assert(posix_memalign(&p, 8, 10) == 0 && p != NULL);
  free(p);
  assert((uintptr_t)(p = valloc(10)) % 4096 == 0 && p != NULL);
  free(p);
  assert((uintptr_t)(p = pvalloc(10)) % 4096 == 0 && malloc_usable_size(p) >= 4096);
  memset(p, 1, 4096);
  free(p);

  // realloc keeps what fits, and the old block where it fails.
  char* text = malloc(6);
  strcpy(text, "hello");
  text = realloc(text, 300000);
  assert(strcmp(text, "hello") == 0);
  text = realloc(text, 6);
  assert(strcmp(text, "hello") == 0);
  char* volatile same = text;
  assert(FAILS_WITH(ENOMEM, realloc(same, huge + 1)));
  assert(strcmp(same, "hello") == 0);
  assert(FAILS_WITH(ENOMEM, reallocarray(same, most / 2, 3)));
  assert(strcmp(same, "hello") == 0);
  errno = 0;
  assert(realloc(same, zero) == NULL && errno == 0);  // glibc frees

  // What may be used is what was asked for.
  assert(malloc_usable_size(NULL) == 0);
  for (size_t bytes = 1; bytes < 5000; bytes += 13) {
    p = malloc(bytes);
    assert(malloc_usable_size(p) == bytes);
    memset(p, 1, bytes);
    free(p);
  }

  // errno survives a free.
  errno = 77;
  for (int i = 0; i < 5000; ++i) free(malloc(1000 + i * 50));
  assert(errno == 77);

  assert(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
  malloc_trim(0);
  assert(mallinfo2().arena > 0);
  puts("kept");
  return 0;
}
