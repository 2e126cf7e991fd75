// Says whether it runs with raised privileges, and overflows a heap block through libc.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

static volatile size_t g_nine = 9;
static char* volatile g_block;

int main(void) {
  g_block = malloc(8);
  memset(g_block, 1, g_nine);
  printf("secure %lu\n", getauxval(AT_SECURE));
  free(g_block);
  return 3;
}
