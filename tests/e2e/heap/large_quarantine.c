// Freed objects of their own region count in the quarantine: they are poisoned, not handed out again, described with
// both stacks, and a second free is told; small blocks freed before them stay in it.
//
// EXPECT: BUG: KASAN: [a-z-]*use-after-free in
// EXPECT: Freed by task
// EXPECT: BUG: KASAN: double-free
// EXPECT: BUG: KASAN: [a-z-]*use-after-free in
// STDOUT: none came back
// EXIT: 99
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBytes = 500000, kObjects = 12 };  // 6 MB, within a quarter of 32 MiB

static volatile size_t g_bytes = kBytes;

int main(void) {
  char* volatile small = malloc(100);
  free(small);
  char* volatile freed[kObjects];
  int came_back = 0;
  for (int i = 0; i < kObjects; ++i) {
    freed[i] = malloc(g_bytes);
    memset(freed[i], i, g_bytes);
    for (int k = 0; k < i; ++k) came_back += freed[i] == freed[k];
    free(freed[i]);
  }
  puts(came_back == 0 ? "none came back" : "some came back");
  memset(freed[0] + 300000, 1, 100);
  free(freed[1]);
  // A write through a stale pointer that nothing checks does no harm when the object leaves the quarantine.
  for (int i = 0; i < 64; ++i) ((volatile char*)freed[2])[i] = (char)0xff;
  for (int i = 0; i < 100; ++i) free(malloc(g_bytes));
  memset(small, 1, 50);
  return 0;
}
