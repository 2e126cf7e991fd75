// A library whose constructor allocates, looks symbols up that do not exist (dlsym allocates then), and hands its
// memory to main, which frees and resizes it.
//
// STDOUT: early and late
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char* early;

__attribute__((constructor(101))) static void first(void) {
  early = malloc(16);
  strcpy(early, "early");
  dlsym(RTLD_DEFAULT, "no_such_symbol_anywhere");
  free(strdup(dlerror()));
}

int main(void) {
  early = realloc(early, 64);
  strcat(early, " and late");
  puts(early);
  free(early);
  return 0;
}
