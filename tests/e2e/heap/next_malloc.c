// dlsym(RTLD_NEXT, "malloc") asked by the program leads to us, because we come behind it in the search order; so what
// it wraps is ours.
//
// STDOUT: wrapped
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  void* (*next_malloc)(size_t) = (void* (*)(size_t))dlsym(RTLD_NEXT, "malloc");
  void (*next_free)(void*) = (void (*)(void*))dlsym(RTLD_NEXT, "free");
  char* p = next_malloc(33);
  if (malloc_usable_size(p) == 33) puts("wrapped");
  free(p);
  next_free(malloc(10));
  return 0;
}
