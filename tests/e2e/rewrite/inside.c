/* Bad buffers for libraries, and bad accesses where programs seldom look: inside.c WHICH. Libraries are taken by dlopen, so
   that one that is not installed is only one that is not tested: exit status 77. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone, aligned(16)))

void *volatile hidden;
volatile int sink;

static void *symbol(const char *library, const char *name) {
  void *handle = dlopen(library, RTLD_NOW);
  void *address = handle ? dlsym(handle, name) : NULL;
  if (!address) exit(77);
  return address;
}

APART void bad_store(char *p) { *p = 1; }

static char *block(size_t bytes) {
  char *p = hidden = malloc(bytes);
  for (size_t n = 0; n < bytes; n++) p[n] = (char)(n * 7);
  return p;
}

static void checksum_zlib(void) {
  unsigned long (*adler32)(unsigned long, const void *, unsigned) = symbol("libz.so.1", "adler32");
  sink = (int)adler32(1, block(100), 101);
}

static void crc_zlib(void) {
  unsigned long (*crc32)(unsigned long, const void *, unsigned) = symbol("libz.so.1", "crc32");
  char *p = block(100);
  free(p);
  sink = (int)crc32(0, p, 100);
}

static void inflate_zlib(void) {
  int (*compress)(void *, unsigned long *, const void *, unsigned long) = symbol("libz.so.1", "compress");
  int (*uncompress)(void *, unsigned long *, const void *, unsigned long) = symbol("libz.so.1", "uncompress");
  char packed[4096];
  unsigned long packed_bytes = sizeof packed;
  compress(packed, &packed_bytes, block(3000), 3000);
  unsigned long bytes = 3000;
  char *small = block(1000);
  uncompress(small, &bytes, packed, packed_bytes);
}

static void integer_png(void) {
  uint32_t (*png_get_uint_32)(const void *) = symbol("libpng16.so.16", "png_get_uint_32");
  sink = (int)png_get_uint_32(block(24) + 21);
}

static void save_png(void) {
  void (*png_save_uint_32)(void *, uint32_t) = symbol("libpng16.so.16", "png_save_uint_32");
  png_save_uint_32(block(24) + 21, 5);
}

static void text_xml(void) {
  int (*xmlStrEqual)(const void *, const void *) = symbol("libxml2.so.2", "xmlStrEqual");
  char *a = block(24);
  char *b = block(24);
  memset(a, 'a', 24);
  memset(b, 'a', 24);
  sink = xmlStrEqual(a, b);
}

/* In a constructor, before main. */
static char **early_arguments;
__attribute__((constructor)) static void early(int argc, char **argv) {
  early_arguments = argv;
  if (argc > 1 && strcmp(argv[1], "constructor") == 0) bad_store(block(10) + 10);
}

static void *in_thread(void *unused) {
  bad_store(block(10) + 10);
  return unused;
}

static void thread(void) {
  pthread_t id;
  pthread_create(&id, NULL, in_thread, NULL);
  pthread_join(id, NULL);
}

static char *for_handler;
static void handler(int number) { (void)number; bad_store(for_handler); }

static void signal_handler(void) {
  for_handler = block(10) + 10;
  signal(SIGUSR1, handler);
  raise(SIGUSR1);
}

static int compare(const void *a, const void *b) {
  bad_store(for_handler);
  return *(const char *)a - *(const char *)b;
}

static void comparator(void) {
  for_handler = block(10) + 10;
  qsort(block(4), 4, 1, compare);
}

static void at_end(void) { bad_store(for_handler); }

static void exit_handler(void) {
  for_handler = block(10) + 10;
  atexit(at_end);
}

static void deep(char *p, int depth) {
  char frame[64];
  memset(frame, depth, sizeof frame);
  if (depth == 0) bad_store(p); else deep(p, depth - 1);
  __asm__ volatile("" : : "r"(frame) : "memory");
}

static void recursion(void) { deep(block(10) + 10, 40); }

static const struct { const char *name; void (*run)(void); } cases[] = {
    {"checksum_zlib", checksum_zlib}, {"crc_zlib", crc_zlib}, {"inflate_zlib", inflate_zlib}, {"integer_png", integer_png},
    {"save_png", save_png}, {"text_xml", text_xml}, {"thread", thread},
    {"signal_handler", signal_handler}, {"comparator", comparator}, {"exit_handler", exit_handler}, {"recursion", recursion},
};

int main(int argc, char **argv) {
  for (unsigned n = 0; argc > 1 && n < sizeof cases / sizeof *cases; n++)
    if (strcmp(argv[1], cases[n].name) == 0) cases[n].run();
  puts("end");
  return 0;
}
