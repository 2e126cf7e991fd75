// realloc of a freed block and of the inside of one: both reported, and the program gets memory to go on with.
//
// EXPECT: BUG: KASAN: double-free
// EXPECT: BUG: KASAN: invalid-free
// STDOUT: 1 1
// EXIT: 99
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  char* volatile p = malloc(40);
  free(p);
  char* volatile a = realloc(p, 80);
  char* volatile q = malloc(40);
  char* volatile inner = q + 8;
  char* volatile b = realloc(inner, 80);
  printf("%d %d\n", a != NULL, b != NULL);
  free(a);
  free(b);
  free(q);
  return 0;
}
