// heap=0 in a program linked with libmimalloc: its mi_* calls reach libmimalloc itself, and malloc as well, because that
// is what the program was linked to have.
//
// OPTIONS: heap=0
// STDOUT: mimalloc serves both
#include <malloc.h>
#include <mimalloc.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  void* const p = mi_malloc(33);
  void* const q = malloc(33);
  if (mi_usable_size(p) == 48 && malloc_usable_size(q) == 48) puts("mimalloc serves both");  // glibc: 40
  mi_free(q);
  free(p);
  mi_heap_t* const heap = mi_heap_new();
  mi_heap_malloc(heap, 100);
  mi_heap_destroy(heap);
  return 0;
}
