/* Memory crosses between namespaces: crossing FILE. The libc of the other namespace takes from our heap and gives back to it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  (void)argc;
  void *module = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
  if (module == NULL) {
    puts(dlerror());
    return 1;
  }
  void *(*take)(size_t) = (void *(*)(size_t))dlsym(module, "plugin_take");
  void (*give)(void *) = (void (*)(void *))dlsym(module, "plugin_give");
  void *theirs = take(77);
  printf("%zu\n", malloc_usable_size(theirs));
  free(theirs);
  give(malloc(10));
  dlclose(module);
  return 0;
}
