// A C program without a C++ runtime of its own: loads a C++ plugin and calls into it.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    void* plugin = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
    if (plugin == 0) return puts(dlerror()), 1;
    int (*run)(void) = (int (*)(void))dlsym(plugin, "run");
    for (int round = 0; round < 3; ++round) {
      if (run() != 42) return puts("wrong answer"), 1;
    }
  }
  puts("ok");
  return 0;
}
