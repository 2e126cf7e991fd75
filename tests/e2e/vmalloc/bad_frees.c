// What penumbra_vfree and penumbra_vrealloc refuse: an address inside an area, one that is no area, one of malloc's.
// Nothing is freed by them.
//
// OPTIONS: multi_shot=1
// EXPECT: BUG: KASAN: invalid-free in main
// EXPECT: BUG: KASAN: invalid-free in main
// EXPECT: BUG: KASAN: invalid-free in main
// EXPECT: BUG: KASAN: invalid-free in main
// STDOUT: 1 1
// EXIT: 99
#include <errno.h>
#include <penumbra/penumbra.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  char* volatile area = penumbra_vmalloc(5000);
  char* volatile block = malloc(100);
  int local = 0;
  int* volatile somewhere = &local;
  area[4999] = 1;
  penumbra_vfree(area + 4096);
  penumbra_vfree(somewhere);
  penumbra_vfree(block);
  errno = 0;
  char* const moved = penumbra_vrealloc(area + 8, 100);
  printf("%d %d\n", area[4999], moved == NULL && errno == EINVAL);
  penumbra_vfree(area);
  free(block);
  return 0;
}
