// The definitions that would have been found without us, for aside_test: each remembers what it was called with.
#include <stddef.h>

unsigned long next_argument;
size_t next_bytes;

#define PUBLIC __attribute__((visibility("default")))

PUBLIC void __asan_load8_noabort(unsigned long address) {
  next_argument = address;
}

PUBLIC void __asan_storeN(unsigned long address, size_t bytes) {
  next_argument = address;
  next_bytes = bytes;
}

PUBLIC void __asan_report_load4(unsigned long address) {
  next_argument = address;
}

PUBLIC void __asan_set_shadow_f8(unsigned long address, size_t bytes) {
  next_argument = address;
  next_bytes = bytes;
}

PUBLIC int __asan_address_is_poisoned(const void* address) {
  next_argument = (unsigned long)address;
  return 77;
}
