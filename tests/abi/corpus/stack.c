// Frames: small and very large variables, scopes, loops of scopes, variable length arrays, alloca, noreturn calls.
#include <alloca.h>

#include "all.h"

int small(int i) {
  int a[10];
  char b[3];
  escape(a);
  escape(b);
  return a[i] + b[i];
}

int very_large(int i) {
  char a[4096];
  char b[100000];
  struct large c[64];
  escape(a);
  escape(b);
  escape(c);
  return a[i] + b[i] + (int)c[i].words[1];
}

int* scopes(int n) {
  int* leak = 0;
  for (int i = 0; i < n; ++i) {
    int inner[7];
    char huge[9000];
    escape(inner);
    escape(huge);
    leak = &inner[i % 7];
  }
  {
    char other[40];
    escape(other);
  }
  return leak;
}

int switch_scopes(int n) {
  switch (n) {
    case 1: {
      char one[33];
      escape(one);
      return one[n];
    }
    case 2: {
      char two[1000];
      escape(two);
      return two[n];
    }
    default: never_returns();
  }
}

int variable(int n) {
  int total = 0;
  for (int i = 1; i < n; ++i) {
    int vla[i];
    escape(vla);
    total += vla[0];
  }
  char* p = alloca((unsigned)n);
  escape(p);
  return total + p[0];
}

void pass(struct large by_value) { escape(&by_value); }
