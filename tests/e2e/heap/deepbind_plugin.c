// The plug-in of deepbind.c: takes and gives back memory, its own and the program's.
#include <stdlib.h>
#include <string.h>

int use_heap(void) {
  char* p = malloc(100);
  memset(p, 7, 100);
  p = realloc(p, 1000);
  const int good = p[99] == 7;
  free(p);
  return good;
}

void give_back(void* p) { free(p); }

void* take(size_t bytes) { return malloc(bytes); }
