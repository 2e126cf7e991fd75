/* A small program with four bugs that everybody makes, for `penumbra --demo`. It runs to its end with each of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct greeting {
  char* text;
  size_t length;
};

/* Forgets the terminating zero. */
static void greet(struct greeting* greeting, const char* name) {
  greeting->length = strlen("Hello, ") + strlen(name);
  greeting->text = malloc(greeting->length);
  strcpy(greeting->text, "Hello, ");
  strcat(greeting->text, name);
}

/* Counts one too far. No call of a library is at fault: only a check of the load itself can see it. */
static unsigned add_up(const unsigned char* text, size_t length) {
  unsigned sum = 0;
  for (size_t i = 0; i <= length; ++i) sum += text[i];
  return sum;
}

static void forget(struct greeting* greeting) {
  free(greeting->text);
}

int main(void) {
  struct greeting greeting;
  greet(&greeting, "half-shadow");
  printf("sum %u\n", add_up((const unsigned char*)greeting.text, greeting.length));
  forget(&greeting);
  /* Reads what has been given back. */
  char copy[8];
  memcpy(copy, greeting.text, sizeof copy);
  printf("%zu bytes copied\n", sizeof copy);
  forget(&greeting);
  return 0;
}
