// Globals of every linkage and kind.
#include "all.h"

int external[10];
static int internal[7] = {1};
const char text[] = "text";
static const struct large constants[2] = {{{1}}};
_Thread_local int local[4];
int common;
__attribute__((weak)) int weak_array[5];
__attribute__((visibility("hidden"))) long hidden[3];
__attribute__((aligned(256))) char aligned[100];
extern int defined_elsewhere[];

const char* literal(void) { return "a literal"; }

int use(int i) {
  static int in_function[9];
  internal[i] = 3;
  hidden[i] = 4;
  return external[i] + internal[i] + text[i] + (int)constants[i].words[i] + local[i] + common + weak_array[i] +
         in_function[i] + aligned[i] + defined_elsewhere[i];
}
