// A program linked with libmimalloc shares it with us (process ruling 15): what it takes from there and what it gives
// back are ours, in every combination with malloc and free, and its own heaps and options do no harm.
//
// EXPECT: BUG: KASAN: double-free
// STDOUT: shared
// EXIT: 99
#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <mimalloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Names that glibc's headers lack.
extern size_t malloc_size(const void*);
extern void vfree(void*);
extern void* reallocf(void*, size_t);
extern int reallocarr(void*, size_t, size_t);

int main(void) {
  mi_option_set(mi_option_limit_os_alloc, 0);
  mi_reserve_os_memory(64 << 20, true, false);

  free(mi_malloc(10));
  mi_free(malloc(10));
  free(mi_realloc(malloc(10), 1000));
  mi_free(realloc(mi_calloc(3, 10), 1000));
  mi_free(strdup("text"));
  free(mi_strdup("text"));
  free(mi_malloc_aligned(100, 256));
  free(mi_new(24));
  char* p = mi_zalloc(100);
  for (int i = 0; i < 100; ++i) assert(p[i] == 0);
  assert(mi_usable_size(p) == 100 && malloc_usable_size(p) == 100 && malloc_size(p) == 100);
  memset(p, 1, 100);
  p = mi_rezalloc(p, 200);
  for (int i = 0; i < 200; ++i) assert(p[i] == (i < 100 ? 1 : 0));
  assert(mi_is_in_heap_region(p) && mi_check_owned(p) && !mi_is_in_heap_region(&p));
  assert(mi_expand(p, 100) == p && mi_expand(p, 100000) == NULL);
  vfree(p);
  p = reallocf(malloc(4), 40);
  assert(reallocarr(&p, 10, 8) == 0 && p != NULL && malloc_usable_size(p) == 80);
  assert(reallocarr(&p, SIZE_MAX, 8) == ENOMEM && malloc_usable_size(p) == 80);
  free(p);

  mi_heap_t* const heap = mi_heap_new();
  char* const q = mi_heap_malloc(heap, 50);
  mi_heap_delete(heap);
  mi_free(q);
  for (int i = 0; i < 1000; ++i) free(mi_malloc(100000));
  mi_collect(true);

  char* volatile twice = mi_malloc(10);
  mi_free(twice);
  free(twice);
  puts("shared");
  return 0;
}
