// Where inline and outline checks differ (cases.md): an access that straddles granules through an aligned type.
#include <stdlib.h>

#include "kunit.h"

struct packed {
  char tag[4];
  long value;
} __attribute__((packed));

static void straddling_typed_access(void) {
  char* ptr = malloc(64);
  HIDE(ptr);
  long* straddling = (long*)(ptr + 60);
  HIDE(straddling);
  // The first granule is fine, the second is the redzone: the compilers' inline check looks at the first only.
  EXPECT_KASAN_FAILS(kInlineChecks ? 0 : 1, SLAB_OOB, *(volatile long*)straddling);
  // Aligned, the same bytes are seen in both modes.
  EXPECT_KASAN_FAIL(SLAB_OOB, *(volatile long*)(ptr + 64));
  free(ptr);
}

static void straddling_packed_access(void) {
  char* ptr = malloc(64);
  struct packed* p = (struct packed*)(ptr + 56);
  HIDE(p);
  volatile long value;
  // The compilers know that it may be unaligned, and check its whole range.
  EXPECT_KASAN_FAIL(SLAB_OOB, value = p->value);
  (void)value;
  free(ptr);
}

struct kunit_case mode_cases[] = {
    {"straddling_typed_access", straddling_typed_access},
    {"straddling_packed_access", straddling_packed_access},
    {0, 0},
};
