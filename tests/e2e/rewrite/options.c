/* One bad access a word, each in the function of that name. */
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline, noclone))

volatile int sink;
void *volatile hidden;

APART void store(char *p) { *p = 1; }
APART void load(char *p) { sink = *p; }
APART void wide(__m128i *p) { __m128i v = *p; __asm__ volatile("" : : "x"(v)); }
struct __attribute__((packed)) odd { char head; uint64_t value; };
APART void misaligned(char *p) { ((struct odd *)(p - 1))->value = 7; }

int main(int argc, char **argv) {
  const char *which = argc > 1 ? argv[1] : "";
  char *p = hidden = malloc(24);
  memset(p, 1, 24);
  if (strcmp(which, "store") == 0) store(p + 24);
  if (strcmp(which, "load") == 0) load(p + 24);
  /* Aligned, of whose bytes the first eight are the object's. */
  if (strcmp(which, "wide") == 0) wide((__m128i *)(p + 16));
  /* Its first three bytes lie in the left redzone. */
  if (strcmp(which, "misaligned") == 0) misaligned(p - 3);
  puts("end");
  return 0;
}
