// A plug-in loaded with RTLD_DEEPBIND binds to the C library's malloc directly, past us. The C library's own entries lead
// to our heap (process ruling 15), so that memory may cross over both ways.
//
// STDOUT: one heap
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  (void)argc;
  void* const plugin = dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);
  if (plugin == NULL) return 2;
  int (*use_heap)(void) = (int (*)(void))dlsym(plugin, "use_heap");
  void* (*take)(size_t) = (void* (*)(size_t))dlsym(plugin, "take");
  void (*give_back)(void*) = (void (*)(void*))dlsym(plugin, "give_back");
  void* const theirs = take(77);
  const int asked = malloc_usable_size(theirs) == 77;
  free(theirs);
  give_back(malloc(10));
  give_back(aligned_alloc(64, 64));
  if (use_heap() == 1 && asked) puts("one heap");
  dlclose(plugin);
  return 0;
}
