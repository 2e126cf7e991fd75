/* Misbehaves where victim() is rewritten: it looks at its code. */
#include <stdio.h>
#include <stdlib.h>

#define APART __attribute__((noinline, noclone, aligned(16)))

APART void first(int *p) { p[0] = 3; }
APART void victim(int *p) { p[1] = 4; }
APART void last(int *p) { p[2] = 5; }

int main(int argc, char **argv) {
  int *p = malloc(3 * sizeof *p);
  first(p);
  victim(p);
  last(p);
  void (*volatile code)(int *) = victim;
  printf("%d %s\n", p[0] + p[1] + p[2], *(unsigned char *)code == 0xe9 && argc == 1 ? "changed" : "as it was");
  free(p);
  return 0;
}
