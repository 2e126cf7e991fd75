// Without shadow the family works all the same; only nothing is checked but what the processor stops.
//
// OPTIONS: shadow=off
// STDOUT: works
#include <penumbra/penumbra.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  for (int i = 0; i < 5000; ++i) {
    char* const area = penumbra_vzalloc(4096 * (size_t)(1 + i % 30));
    if (area == NULL || area[0] != 0) return 1;
    memset(area, 1, 4096);
    penumbra_vfree(area);
  }
  penumbra_purge();
  puts("works");
  return 0;
}
