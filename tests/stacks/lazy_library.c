// A library whose outside calls are bound when they are made first (linked with -z lazy).
#include <stdlib.h>

int call_lazily(const char* text) {
  int value = atoi(text);
  return value;
}

// Called by the resolver below: on the stack of a lazy binding, under the loader's trampoline.
void (*during_binding)(void);

static int chosen(void) {
  return 5;
}

static int (*choose(void))(void) {
  if (during_binding != NULL) during_binding();
  return chosen;
}

int chosen_when_bound(void) __attribute__((ifunc("choose")));

int call_chosen(void) {
  int value = chosen_when_bound();
  return value + 1;
}
