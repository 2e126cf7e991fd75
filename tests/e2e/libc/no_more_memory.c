// A program that allows itself less than it uses: every request fails as C says, and nothing crashes.
//
// NEVER: .
// STDOUT: mmap: Cannot allocate memory
// STDOUT: lived on
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

int main(void) {
  struct rlimit limit = {1 << 20, 1 << 20};
  if (setrlimit(RLIMIT_AS, &limit) != 0 || setrlimit(RLIMIT_DATA, &limit) != 0) return 1;
  for (int i = 0; i < 200; ++i) {
    void* p = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p != MAP_FAILED) continue;
    printf("mmap: %s\n", strerror(errno));
    break;
  }
  for (size_t bytes = 1, total = 0; total < 300u << 20; bytes = bytes * 5 % 3000017 + 1, total += bytes) {
    char* p = malloc(bytes);
    if (p == NULL && errno != ENOMEM) return 2;
    if (p != NULL) p[0] = p[bytes - 1] = 1;
  }
  puts("lived on");
  return 0;
}
