// The region allocator through its C API, with the hits that the kernel cannot test because they would crash it: the
// check comes before the access, and user space can put something there to be hit.
#include <penumbra/penumbra.h>
#include <string.h>

#include "kunit.h"

#define VMALLOC_OOB "vmalloc-out-of-bounds"

static void vmalloc_oob(void) {
  const size_t size = kPage / 2 - kGranule - 5;  // 2035: the last granule is partial
  char* ptr = penumbra_vmalloc(size);
  EXPECT(ptr != NULL);
  HIDE(ptr);
  EXPECT_NO_REPORT(((volatile char*)ptr)[0] = 0);
  EXPECT_NO_REPORT(((volatile char*)ptr)[size - 1] = 0);
  EXPECT_KASAN_FAIL(VMALLOC_OOB, ((volatile char*)ptr)[size]);
  EXPECT_KASAN_FAIL(VMALLOC_OOB, ((volatile char*)ptr)[size + 5]);
  EXPECT_KASAN_FAIL(VMALLOC_OOB, ((volatile char*)ptr)[kPage - 1] = 'x');
  penumbra_vfree(ptr);
}

// Inline and outline checks report before the access; that the memory is gone matters only afterwards.
static void vmalloc_uaf(void) {
  char* ptr = penumbra_vmalloc(3 * kPage);
  memset(ptr, 1, 3 * kPage);
  penumbra_vfree(ptr);
  HIDE(ptr);
  EXPECT_KASAN_FAIL("vmalloc-use-after-free", ((volatile char*)ptr)[0]);
  EXPECT_KASAN_FAIL("vmalloc-use-after-free", ((volatile char*)ptr)[3 * kPage - 1]);
  EXPECT_KASAN_FAIL("vmalloc-use-after-free", memset(ptr + kPage, 0, 8));
}

// Two reports: the check's, and that of the fault itself, because region memory is no business of the program's handler.
static void vmalloc_guard(void) {
  char* ptr = penumbra_vmalloc(2 * kPage);
  char to[64];
  HIDE(ptr);
  EXPECT_NO_REPORT(memcpy(to, ptr + 2 * kPage - 64, 64));
  EXPECT_KASAN_FAILS(2, "vmalloc-guard", kunit_touch_inaccessible(ptr + 2 * kPage));
  EXPECT_KASAN_FAILS(2, "vmalloc-guard", kunit_touch_inaccessible(ptr + 3 * kPage - 1));
  penumbra_vfree(ptr);
}

// After the clean-up nothing is left of the area but its place, not even shadow. An outline check asks the unit map and
// reports, then the fault is reported as well; inline checks see shadow that reads 0, and the fault alone tells.
static void vmalloc_uaf_after_purge(void) {
  char* ptr = penumbra_vmalloc(64 * kPage);
  memset(ptr, 1, 64 * kPage);
  penumbra_vfree(ptr);
  penumbra_purge();
  HIDE(ptr);
  EXPECT_KASAN_FAILS(kInlineChecks ? 1 : 2, "vmalloc-use-after-free", kunit_touch_inaccessible(ptr + 32 * kPage));
}

static void vmalloc_invalid_free(void) {
  char* ptr = penumbra_vmalloc(2 * kPage);
  HIDE(ptr);
  EXPECT_KASAN_FAIL("invalid-free", penumbra_vfree(ptr + kPage));
  penumbra_vfree(ptr);
  EXPECT_KASAN_FAIL("double-free", penumbra_vfree(ptr));
}

static void vrealloc_helpers_generic(void) {
  const size_t size = kPage / 2 - kGranule - 5;
  char* ptr = penumbra_vmalloc(size);
  HIDE(ptr);
  EXPECT_KASAN_FAIL(VMALLOC_OOB, ((volatile char*)ptr)[size + 5]);
  // Grow within the page.
  const size_t more = size + kPage / 2;
  ptr = penumbra_vrealloc(ptr, more);
  EXPECT(ptr != NULL);
  HIDE(ptr);
  EXPECT_NO_REPORT(((volatile char*)ptr)[size] = 'x');
  EXPECT_NO_REPORT(((volatile char*)ptr)[more - 1] = 'x');
  EXPECT_KASAN_FAIL(VMALLOC_OOB, ((volatile char*)ptr)[more]);
  EXPECT_KASAN_FAIL(VMALLOC_OOB, ((volatile char*)ptr)[more + 5]);
  // And back.
  ptr = penumbra_vrealloc(ptr, size);
  EXPECT(ptr != NULL);
  HIDE(ptr);
  EXPECT_NO_REPORT(((volatile char*)ptr)[size - 1] = 'x');
  EXPECT_KASAN_FAIL(VMALLOC_OOB, ((volatile char*)ptr)[size]);
  EXPECT_KASAN_FAIL(VMALLOC_OOB, ((volatile char*)ptr)[size + 5]);
  EXPECT_KASAN_FAIL(VMALLOC_OOB, ((volatile char*)ptr)[more - 1]);
  penumbra_vfree(ptr);
}

struct kunit_case vmalloc_cases[] = {
    {"vmalloc_oob", vmalloc_oob},
    {"vmalloc_uaf", vmalloc_uaf},
    {"vmalloc_guard", vmalloc_guard},
    {"vmalloc_uaf_after_purge", vmalloc_uaf_after_purge},
    {"vmalloc_invalid_free", vmalloc_invalid_free},
    {"vrealloc_helpers_generic", vrealloc_helpers_generic},
    {NULL, NULL},
};
