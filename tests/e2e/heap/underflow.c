// A write just before a block, by code that nothing checks, is found when the block is freed: its header lies there.
//
// EXPECT: BUG: KASAN: .*
// STDOUT: still here
// EXIT: 99
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  char* volatile p = malloc(40);
  for (int i = 1; i <= 8; ++i) p[-i] = 'x';
  free(p);
  puts("still here");
  return 0;
}
