// Where the calls go that a compiler makes up by itself: a struct copy becomes memcpy, a loop becomes memset.
//
// Linked into libpenumbra.so only, with -Wl,--wrap for each name: inside the library `memcpy` then means
// __wrap_memcpy, while the memcpy that it exports for the program stays what instrument/libc defines.
//
// zone: signal-safe
#include "runtime/base/raw_memory.h"

// Not members of the project's namespace: the linker makes the names.
extern "C" {
void* __wrap_memcpy(void* to, const void* from, std::size_t bytes);
void* __wrap_memmove(void* to, const void* from, std::size_t bytes);
void* __wrap_memset(void* to, int value, std::size_t bytes);
int __wrap_memcmp(const void* a, const void* b, std::size_t bytes);
int __wrap_bcmp(const void* a, const void* b, std::size_t bytes);
std::size_t __wrap_strlen(const char* text);

void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  return penumbra::raw_copy(to, from, bytes);
}

void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
  return penumbra::raw_move(to, from, bytes);
}

void* __wrap_memset(void* to, int value, std::size_t bytes) {
  return penumbra::raw_set(to, value, bytes);
}

int __wrap_memcmp(const void* a, const void* b, std::size_t bytes) {
  return penumbra::raw_compare(a, b, bytes);
}

int __wrap_bcmp(const void* a, const void* b, std::size_t bytes) {
  return penumbra::raw_compare(a, b, bytes);
}

std::size_t __wrap_strlen(const char* text) {
  return penumbra::raw_length(text);
}
}
