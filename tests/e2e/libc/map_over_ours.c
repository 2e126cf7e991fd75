// Memory ruling 3: what would map over Penumbra's memory fails with one line, and the program lives.
//
// EXPECT: ^penumbra: refused mmap of 0x7fff8000-0x7fff9000: Penumbra's own memory lies there$
// EXPECT: ^penumbra: refused mmap of 0x
// EXPECT: ^penumbra: refused munmap of 0x
// NEVER: BUG
// STDOUT: File exists
// STDOUT: File exists
// STDOUT: Invalid argument
// STDOUT: a heap block may be protected
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(void) {
  if (mmap((void*)0x7fff8000, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
    puts(strerror(errno));
  }
  // The span, where the heap's blocks lie.
  char* block = aligned_alloc(4096, 8192);
  if (mmap(block, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) puts(strerror(errno));
  if (munmap(block, 4096) != 0) puts(strerror(errno));
  memset(block, 1, 8192);
  if (mprotect(block, 8192, PROT_READ) == 0 && block[5] == 1 && mprotect(block, 8192, PROT_READ | PROT_WRITE) == 0) {
    puts("a heap block may be protected");
  }
  block[7] = 2;
  free(block);
  return 0;
}
