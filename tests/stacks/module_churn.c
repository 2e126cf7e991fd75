// Run under libpenumbra.so: loads two libraries in turn at one place and allocates through both. Built with
// validate=every_op the library compares each stack it records with one walked without any memory, and traps where a
// rule of the closed library was used. Exits 0 if the libraries did take each other's place.
#include <dlfcn.h>
#include <iconv.h>
#include <stdlib.h>
#include <string.h>

static void* volatile g_block;

static void allocate(void) {
  for (int i = 0; i < 4; ++i) {
    g_block = malloc(100);
    free(g_block);
  }
}

// The address of the function, or null if the library cannot be used.
static void* use(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return NULL;
  void* address = dlsym(library, "call_through");
  void (*call_through)(void (*)(void));
  memcpy(&call_through, &address, sizeof call_through);
  call_through(allocate);
  dlclose(library);
  return address;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  int same_place = 0;
  for (int round = 0; round < 50; ++round) {
    void* first = use(argv[1]);
    void* second = use(argv[2]);
    if (first == NULL || second == NULL) return 3;
    same_place += first == second;
    // libc loads and closes modules of its own, unseen by any dlclose.
    iconv_t converter = iconv_open("UTF-16", "KOI8-R");
    if (converter != (iconv_t)-1) iconv_close(converter);
  }
  return same_place > 10 ? 0 : 4;
}
