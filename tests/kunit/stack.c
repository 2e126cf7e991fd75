// Stack variables, and arrays of variable length.
#include <alloca.h>

#include "kunit.h"

static void kasan_stack_oob(void) {
  char stack_array[10];
  // See the kernel's comment: one byte behind, in the partial granule.
  char* p = &stack_array[sizeof stack_array];
  HIDE(p);
  EXPECT_KASAN_FAIL("stack-out-of-bounds", *(volatile char*)p);
}

static void kasan_alloca_oob_left(void) {
  volatile int i = 10;
  char alloca_array[i];
  char* p = alloca_array - 1;
  HIDE(p);
  EXPECT_KASAN_FAIL("alloca-out-of-bounds", *(volatile char*)p);
}

static void kasan_alloca_oob_right(void) {
  volatile int i = 10;
  char alloca_array[i];
  char* p = alloca_array + i;
  HIDE(p);
  EXPECT_KASAN_FAIL("alloca-out-of-bounds", *(volatile char*)p);
}

struct kunit_case stack_cases[] = {
    {"kasan_stack_oob", kasan_stack_oob},
    {"kasan_alloca_oob_left", kasan_alloca_oob_left},
    {"kasan_alloca_oob_right", kasan_alloca_oob_right},
    {0, 0},
};
