// Mistakes with regions, in a program that nobody compiled with checks: regions.c MODE.
//
// The library is found in the process (preloaded). What libc is asked to do is checked beforehand; the program's own
// loads and stores are seen only where the processor stops them.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void* penumbra_vmalloc(size_t) __attribute__((weak));
extern void penumbra_vfree(const void*) __attribute__((weak));
extern void penumbra_purge(void) __attribute__((weak));

#define NOINLINE __attribute__((noipa))

static volatile size_t g_five = 5;

NOINLINE char* make_area(void) { return penumbra_vmalloc(5000); }

NOINLINE void drop_area(char* area) { penumbra_vfree(area); }

NOINLINE char read_byte(volatile char* byte) { return *byte; }

int main(int argc, char** argv) {
  const char* const mode = argc > 1 ? argv[1] : "";
  if (penumbra_vmalloc == NULL) return 77;
  char* area = make_area();
  memset(area, 1, g_five * 1000);  // all of it: fine
  if (strcmp(mode, "tail") == 0) {
    memset(area + 4999, 1, g_five);
  } else if (strcmp(mode, "guard") == 0) {
    return read_byte(area + 8192 + 100);
  } else if (strcmp(mode, "freed") == 0) {
    drop_area(area);
    return memchr(area, 7, g_five) != NULL;
  } else if (strcmp(mode, "purged") == 0) {
    drop_area(area);
    penumbra_purge();
    return read_byte(area + 10);
  } else if (strcmp(mode, "double_free") == 0) {
    drop_area(area);
    drop_area(area);
    return 0;
  } else if (strcmp(mode, "interior_free") == 0) {
    drop_area(area + 16);
  } else if (strcmp(mode, "foreign_free") == 0) {
    char local[16];
    drop_area(local);
  }
  drop_area(area);
  return 0;
}
