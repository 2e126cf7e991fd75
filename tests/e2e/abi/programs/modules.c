// An instrumented module comes and goes: its globals have redzones while it is there, and leave none to whoever gets
// its addresses next. Loaded by a program that reads beyond one on request (argument "bad").
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>

#include "support.h"

int main(int argc, char** argv) {
  for (int round = 0; round < 10; ++round) {
    void* module = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (module == 0) puts(dlerror());
    EXPECT(module != 0);
    int* array = dlsym(module, "module_array");
    int (*read)(int) = (int (*)(int))dlsym(module, "module_read");
    EXPECT(read(0) == 7 && read(9) == 0);
    EXPECT(__asan_region_is_poisoned(array, 44) == (void*)(array + 10));
    if (argc > 2 && round == 0) {
      volatile int value = read(11);
      (void)value;
    }
    char* page = (char*)((unsigned long)array & ~4095ul);
    EXPECT(dlclose(module) == 0);
    EXPECT(__asan_region_is_poisoned(page, 4096) == 0);
  }
  puts("ok");
  return 0;
}
