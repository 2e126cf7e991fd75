// The C library's own definitions of malloc's family, found through its handle and so past us, are our heap (process
// ruling 15): each takes what ours gave, and the other way round.
//
// STDOUT: all ours
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

static void* libc;

static void* of_libc(const char* name) {
  void* const found = dlsym(libc, name);
  if (found == NULL) printf("no %s\n", name);
  return found;
}

static void ours(const char* what, void* p, size_t bytes) {
  if (p == NULL || malloc_usable_size(p) != bytes) printf("%s is not ours\n", what);
  free(p);
}

int main(void) {
  libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  if (libc == NULL) return 2;
  typedef void* (*One)(size_t);
  typedef void* (*Two)(size_t, size_t);
  const char* ones[] = {"malloc", "__libc_malloc", "valloc", "__libc_valloc"};
  for (int i = 0; i < 4; ++i) ours(ones[i], ((One)of_libc(ones[i]))(100), 100);
  const char* twos[] = {"memalign", "aligned_alloc", "__libc_memalign"};
  for (int i = 0; i < 3; ++i) ours(twos[i], ((Two)of_libc(twos[i]))(64, 128), 128);
  ours("calloc", ((Two)of_libc("calloc"))(10, 11), 110);
  ours("__libc_calloc", ((Two)of_libc("__libc_calloc"))(10, 11), 110);
  ours("realloc", ((void* (*)(void*, size_t))of_libc("realloc"))(malloc(10), 33), 33);
  ours("__libc_realloc", ((void* (*)(void*, size_t))of_libc("__libc_realloc"))(malloc(10), 33), 33);
  void* p = NULL;
  ((int (*)(void**, size_t, size_t))of_libc("posix_memalign"))(&p, 32, 55);
  ours("posix_memalign", p, 55);
  if (((size_t(*)(void*))of_libc("malloc_usable_size"))(p = malloc(21)) != 21) puts("another size");
  ((void (*)(void*))of_libc("free"))(p);
  ((void (*)(void*))of_libc("__libc_free"))(malloc(5));
  puts("all ours");
  return 0;
}
