/* A module with bugs, loaded by host.c: one in its constructor, one in a function, and an indirect function whose resolver
   touches the heap before the module is relocated completely. */
#include <stdio.h>
#include <stdlib.h>

char *volatile plugin_block;

__attribute__((noinline)) void overflow_in_plugin(char *p, int n) { p[n] = 1; }

__attribute__((constructor)) static void load_plugin(void) {
  plugin_block = malloc(24);
  if (getenv("PLUGIN_BUG") && getenv("PLUGIN_BUG")[0] == 'c') overflow_in_plugin(plugin_block, 24);
}

__attribute__((destructor)) static void unload_plugin(void) {
  if (getenv("PLUGIN_BUG") && getenv("PLUGIN_BUG")[0] == 'd') overflow_in_plugin(plugin_block, 25);
  free(plugin_block);
}

static int answer_42(void) { return 42; }

/* Must not call through the PLT: the module is not relocated yet. The loop gives the resolver checked accesses. */
static int (*resolve_answer(void))(void) {
  volatile int digits[4] = {4, 2, 0, 0};
  volatile int *volatile p = digits;
  int sum = 0;
  for (int n = 0; n < 4; n++) sum = sum * 10 + p[n];
  return sum == 4200 ? answer_42 : NULL;
}

int plugin_answer(void) __attribute__((ifunc("resolve_answer")));

int plugin_run(const char *bug) {
  int sum = 0;
  for (int n = 0; n < 24; n++) plugin_block[n] = (char)n;
  for (int n = 0; n < 24; n++) sum += plugin_block[n];
  if (bug[0] == 'f') overflow_in_plugin(plugin_block, 26);
  return sum + plugin_answer();
}

void *plugin_take(size_t bytes) { return malloc(bytes); }

void plugin_give(void *p) { free(p); }
