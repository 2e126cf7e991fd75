// A plug-in loaded with RTLD_DEEPBIND binds to the C library's malloc directly. As long as it keeps its memory to
// itself, both heaps work side by side. (Memory that crosses over needs libc's own entries to be ours, process ruling
// 15.)
//
// STDOUT: side by side
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  (void)argc;
  void* const plugin = dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);
  if (plugin == NULL) return 2;
  int (*use_heap)(void) = (int (*)(void))dlsym(plugin, "use_heap");
  free(malloc(10));
  if (use_heap() == 1) puts("side by side");
  free(malloc(10));
  dlclose(plugin);
  return 0;
}
