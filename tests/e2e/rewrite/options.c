/* One bad access a word, each in the function of that name. */
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

volatile int sink;
void *volatile hidden;

APART void store(char *p) { *p = 1; }
APART void load(char *p) { sink = *p; }
APART void wide(__m128i *p) { __m128i v = *p; __asm__ volatile("" : : "x"(v)); }
struct __attribute__((packed)) odd { char head; uint64_t value; };
/* One bad access each of libc's own code, of a string function that libc checks at its entry, and of the kernel. */
APART void to_text(char *p) { snprintf(p + 20, 10, "%d", 12345678); }
APART void from_text(char *p) { sink = atoi(p + 24); }
APART void to_block(char *p) { memset(p + 20, 2, 8); }
APART void from_block(char *p) { sink = strnlen(p + 20, 8); }
APART void to_buffer(char *p) { read(open("/dev/zero", O_RDONLY), p + 20, 8); }
APART void from_buffer(char *p) { write(open("/dev/null", O_WRONLY), p + 20, 8); }
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
  if (strcmp(which, "to_text") == 0) to_text(p);
  if (strcmp(which, "from_text") == 0) from_text(p);
  if (strcmp(which, "to_block") == 0) to_block(p);
  if (strcmp(which, "from_block") == 0) from_block(p);
  if (strcmp(which, "to_buffer") == 0) to_buffer(p);
  if (strcmp(which, "from_buffer") == 0) from_buffer(p);
  puts("end");
  return 0;
}
