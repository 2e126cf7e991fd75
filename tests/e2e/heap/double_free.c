// A block is freed twice: the second free is reported with the stacks of the allocation and of the first free.
//
// EXPECT: BUG: KASAN: double-free
// EXPECT: Allocated by task
// EXPECT: Freed by task
// STDOUT: still here
// EXIT: 99
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  char* volatile p = malloc(40);
  free(p);
  free(p);
  puts("still here");
  return 0;
}
