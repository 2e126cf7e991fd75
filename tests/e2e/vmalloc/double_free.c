// An area freed twice is reported with both stacks, also when it was purged in between.
//
// EXPECT: BUG: KASAN: double-free in main
// EXPECT: Allocated by task
// EXPECT: Freed by task
// STDOUT: still here
// EXIT: 99
#include <penumbra/penumbra.h>
#include <stdio.h>

int main(void) {
  void* volatile area = penumbra_vmalloc(5000);
  penumbra_vfree(area);
  penumbra_purge();
  penumbra_vfree(area);
  puts("still here");
  return 0;
}
