// Nanoseconds for one malloc and free, by thread CPU time: pairs SIZE FRAMES LOOPS [KEEP]
//
// The program is an ordinary one: which heap serves it is decided by what is preloaded. The pair runs FRAMES calls
// below main, because recording a stack costs by the frame. KEEP blocks are alive at any time (first in, first out), so
// that a heap cannot answer from the block it just got back. Touches nothing of the blocks: that cost is the program's.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMostKept = 4096 };

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

static void* volatile kept[kMostKept];

static double run(size_t bytes, long loops, long keep) {
  for (long i = 0; i < keep; ++i) kept[i] = malloc(bytes);
  const double begin = now_ns();
  for (long i = 0; i < loops; ++i) {
    const long slot = i % keep;
    free(kept[slot]);
    kept[slot] = malloc(bytes);
  }
  const double end = now_ns();
  for (long i = 0; i < keep; ++i) free(kept[i]);
  return (end - begin) / loops;
}

__attribute__((noinline)) static double descend(int frames, size_t bytes, long loops, long keep) {
  volatile char local[32];
  local[0] = 0;
  const double result = frames > 0 ? descend(frames - 1, bytes, loops, keep) : run(bytes, loops, keep);
  return result + local[0];
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const size_t bytes = strtoul(argv[1], NULL, 10);
  const int frames = atoi(argv[2]);
  const long loops = atol(argv[3]);
  const long keep = argc > 4 ? atol(argv[4]) : 16;
  if (keep < 1 || keep > kMostKept) return 2;
  descend(frames, bytes, loops / 10 + 1, keep);  // warm: caches, page tables, a full quarantine
  printf("%.3f\n", descend(frames, bytes, loops, keep));
  return 0;
}
