/* Faults that libc's own code runs into, for one caller and for two: places.c WORD */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *unterminated(void) {
  char *block = malloc(24);
  memset(block, 'x', 24);
  return block;
}

__attribute__((noinline)) void say_first(const char *text) { printf("%.4s %s\n", "1", text); }
__attribute__((noinline)) void say_second(const char *text) { printf("%.4s %s\n", "2", text); }

int main(int argc, char **argv) {
  const char *word = argc > 1 ? argv[1] : "";
  char *text = unterminated();
  freopen("/dev/null", "w", stdout);
  if (strcmp(word, "one-call") == 0) {
    free(text);
    text = strdup(text); /* read by strlen, then by memcpy: one fault */
  } else if (strcmp(word, "two-calls") == 0) {
    say_first(text);
    say_second(text);
  } else if (strcmp(word, "a-loop") == 0) {
    for (int i = 0; i < 5; ++i) say_first(text);
  }
  fputs("end\n", stderr);
  return text == 0;
}
