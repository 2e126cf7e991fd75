// One wrong access, chosen by the argument; the test knows what must be reported.
#include <alloca.h>
#include <string.h>

#include "support.h"

int global_array[10];
static char static_text[13] = "text";

__attribute__((noinline)) static int* scope_leak(void) {
  int* leaked;
  {
    int inner[10];
    plain_use(inner);
    leaked = inner;
  }
  plain_use(&leaked);
  return (int*)(long)*(volatile int*)(leaked + 3);
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  volatile int n = argc + 8;  // 10 with one argument
  int stack_array[10];
  memset(stack_array, 0, sizeof stack_array);
  plain_use(stack_array);
  volatile int sink = 0;
  if (strcmp(what, "global") == 0) sink = global_array[n + 1];
  if (strcmp(what, "static") == 0) sink = static_text[n + 3];
  if (strcmp(what, "stack") == 0) stack_array[n] = 1;
  if (strcmp(what, "stack-left") == 0) sink = stack_array[n - 11];
  if (strcmp(what, "scope") == 0) sink = scope_leak() != 0;
  if (strcmp(what, "alloca") == 0) {
    char* block = alloca((unsigned)n);
    plain_use(block);
    sink = block[n];
  }
  if (strcmp(what, "alloca-left") == 0) {
    char vla[n];
    plain_use(vla);
    sink = vla[n - 11];
  }
  plain_use((void*)&sink);
  puts("ok");
  return 0;
}
