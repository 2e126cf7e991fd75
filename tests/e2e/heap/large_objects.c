// Objects that are regions of their own: content, alignment, sparse use, reuse, and a free of the same one twice.
//
// EXPECT: BUG: KASAN: .*free
// STDOUT: large
// EXIT: 99
#include <assert.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
  for (int round = 0; round < 200; ++round) {
    const size_t bytes = 300000 + round * 12345;
    char* p = malloc(bytes);
    assert(p != NULL && malloc_usable_size(p) == bytes);
    memset(p, round, bytes);
    p = realloc(p, bytes * 2);
    assert(p[0] == (char)round && p[bytes - 1] == (char)round);
    free(p);
  }
  for (size_t alignment = 16; alignment <= 64u << 20; alignment *= 4) {
    char* p = aligned_alloc(alignment, 1 << 20);
    assert(p != NULL && (uintptr_t)p % alignment == 0);
    memset(p, 1, 1 << 20);
    free(p);
  }
  // 16 GiB of which three bytes are used.
  char* sparse = calloc(1, (size_t)16 << 30);
  assert(sparse != NULL);
  sparse[0] = sparse[(size_t)8 << 30] = sparse[((size_t)16 << 30) - 1] = 1;
  free(sparse);
  char* volatile twice = malloc(1 << 20);
  free(twice);
  free(twice);
  puts("large");
  return 0;
}
