// A library whose one outside call is bound when it is made first (linked with -z lazy).
#include <stdlib.h>

int call_lazily(const char* text) {
  int value = atoi(text);
  return value;
}
