// A library to be closed, with a function that no dynamic symbol names.
#include <stdint.h>

int plugin_function(int a) {
  return a + 1;
}

static __attribute__((noinline)) int hidden(int a) {
  return a * 3;
}

uintptr_t plugin_hidden_address(void) {
  return (uintptr_t)&hidden;
}
