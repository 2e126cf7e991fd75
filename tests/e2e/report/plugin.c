// Allocates for its host, and is closed before the host makes a mistake with it.
#include <stdlib.h>

char* plugin_allocate(size_t bytes) {
  char* volatile block = malloc(bytes);
  return block;
}
