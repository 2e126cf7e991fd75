// Memory ruling 17: mlockall locks the program and leaves 15 TiB of shadow alone; the heap works on.
//
// NEVER: .
// STDOUT: locked
// STDOUT: heap works
// STDOUT: unlocked
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static long locked_kib(void) {
  FILE* f = fopen("/proc/self/status", "r");
  char line[256];
  long kib = -1;
  while (fgets(line, sizeof line, f)) sscanf(line, "VmLck: %ld", &kib);
  fclose(f);
  return kib;
}

int main(void) {
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return perror("mlockall"), 77;
  long kib = locked_kib();
  puts(kib > 500 && kib < 1000000 ? "locked" : "wrong amount");
  for (int i = 0; i < 20000; ++i) {
    char* p = malloc(i * 7 % 100000 + 1);
    memset(p, i, i * 7 % 100000 + 1);
    free(p);
  }
  char* big = malloc(64 << 20);
  big[5] = 1;
  free(big);
  puts(locked_kib() < 1000000 ? "heap works" : "the heap was locked");
  munlockall();
  puts(locked_kib() == 0 ? "unlocked" : "still locked");
  return 0;
}
