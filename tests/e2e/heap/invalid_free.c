// Pointers that no block begins at are handed to free: into a block, of the stack, of a global, to nowhere.
//
// EXPECT: BUG: KASAN: invalid-free
// EXPECT: BUG: KASAN: invalid-free
// EXPECT: BUG: KASAN: invalid-free
// EXPECT: BUG: KASAN: invalid-free
// STDOUT: still here
// EXIT: 99
#include <stdio.h>
#include <stdlib.h>

static char global[64];

int main(void) {
  char local[64];
  char* volatile p = malloc(100);
  char* volatile inner = p + 16;
  char* volatile stack = local + 16;
  char* volatile data = global;
  char* volatile nowhere = (char*)0x123456789a0;
  free(inner);
  free(stack);
  free(data);
  free(nowhere);
  free(p);
  puts("still here");
  return 0;
}
