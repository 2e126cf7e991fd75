/* Overflows a heap block through __memcpy_chk, as a distribution's binary does, and with "twice" frees a block twice.
 * Built without debug information and stripped. */
#include <stdlib.h>
#include <string.h>

extern void* __memcpy_chk(void* to, const void* from, size_t bytes, size_t object);

/* The compiler must not see through the sizes, or it would call plain memcpy; -fno-builtin keeps it from dropping a copy
 * into a block that is freed behind it. */
static volatile size_t bytes = 37;
static volatile size_t object = (size_t)-1;

int main(int argc, char** argv) {
  static char source[64];
  char* const block = malloc(36);
  if (argc > 1 && strcmp(argv[1], "twice") == 0) {
    free(block);
    free(block);
    return 0;
  }
  __memcpy_chk(block, source, bytes, object);
  free(block);
  return 0;
}
