// Globals: redzones on the right with both compilers; clang has one on the left as well, gcc has not.
#include "kunit.h"

static char global_array[10];

static void kasan_global_oob_right(void) {
  // Three bytes on: in the partial granule behind the array.
  char* array = global_array;
  HIDE(array);
  EXPECT_NO_REPORT(*(volatile char*)&array[9]);
  EXPECT_KASAN_FAIL("global-out-of-bounds", *(volatile char*)&array[sizeof global_array + 3]);
}

#ifdef __clang__
static void kasan_global_oob_left(void) {
  char* p = global_array - 3;
  HIDE(p);
  EXPECT_KASAN_FAIL("global-out-of-bounds", *(volatile char*)p);
}
#endif

struct kunit_case global_cases[] = {
    {"kasan_global_oob_right", kasan_global_oob_right},
#ifdef __clang__
    {"kasan_global_oob_left", kasan_global_oob_left},
#endif
    {0, 0},
};
