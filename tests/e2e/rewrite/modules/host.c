/* Loads a module and runs it, again and again: host FILE COUNT BUG [namespace|children]. With `children` it says whether it
   has any. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
  int count = atoi(argv[2]);
  int sum = 0;
  for (int n = 0; n < count; n++) {
    void *module = argc > 4 && argv[4][0] == 'n' ? dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW) : dlopen(argv[1], n % 2 ? RTLD_LAZY : RTLD_NOW);
    if (module == NULL) {
      puts(dlerror());
      return 1;
    }
    int (*run)(const char *) = (int (*)(const char *))dlsym(module, "plugin_run");
    sum += run(argv[3]);
    if (dlclose(module) != 0) return 2;
    /* Takes the place where the module was, every other time. */
    if (n % 2) free(malloc(1 << 20));
  }
  if (argc > 4 && argv[4][0] == 'c') puts(waitpid(-1, NULL, WNOHANG | __WALL) < 0 && errno == ECHILD ? "no children" : "children");
  printf("sum %d\n", sum);
  return 0;
}
