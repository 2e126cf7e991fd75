// krealloc: what it makes accessible, what it takes back, and what it does with a freed object.
#include <stdlib.h>

#include "kunit.h"

static size_t round_up(size_t size) { return (size + kGranule - 1) & ~(size_t)(kGranule - 1); }

static void krealloc_more_oob_helper(size_t size1, size_t size2) {
  const size_t middle = size1 + (size2 - size1) / 2;
  char* ptr1 = malloc(size1);
  char* ptr2 = realloc(ptr1, size2);
  HIDE(ptr2);
  // All offsets up to size2 are accessible.
  EXPECT_NO_REPORT(((volatile char*)ptr2)[size1 - 1] = 'x');
  EXPECT_NO_REPORT(((volatile char*)ptr2)[size1] = 'x');
  EXPECT_NO_REPORT(((volatile char*)ptr2)[middle] = 'x');
  EXPECT_NO_REPORT(((volatile char*)ptr2)[size2 - 1] = 'x');
  EXPECT_KASAN_FAIL(SLAB_OOB, ((volatile char*)ptr2)[size2] = 'x');
  EXPECT_KASAN_FAIL(SLAB_OOB, ((volatile char*)ptr2)[round_up(size2)] = 'x');
  free(ptr2);
}

static void krealloc_less_oob_helper(size_t size1, size_t size2) {
  const size_t middle = size2 + (size1 - size2) / 2;
  char* ptr1 = malloc(size1);
  char* ptr2 = realloc(ptr1, size2);
  HIDE(ptr2);
  EXPECT_NO_REPORT(((volatile char*)ptr2)[size2 - 1] = 'x');
  EXPECT_KASAN_FAIL(SLAB_OOB, ((volatile char*)ptr2)[size2] = 'x');
  EXPECT_KASAN_FAIL(SLAB_OOB, ((volatile char*)ptr2)[round_up(size2)] = 'x');
  EXPECT_KASAN_FAIL(SLAB_OOB, ((volatile char*)ptr2)[middle] = 'x');
  EXPECT_KASAN_FAIL(SLAB_OOB, ((volatile char*)ptr2)[size1 - 1] = 'x');
  EXPECT_KASAN_FAIL(SLAB_OOB, ((volatile char*)ptr2)[size1] = 'x');
  free(ptr2);
}

static void krealloc_more_oob(void) { krealloc_more_oob_helper(201, 235); }

static void krealloc_less_oob(void) { krealloc_less_oob_helper(235, 201); }

static void krealloc_large_more_oob(void) {
  krealloc_more_oob_helper(kMaxCacheSize + 201, kMaxCacheSize + 235);
  krealloc_more_oob_helper(kLargeSize + 201, kLargeSize + 235);
}

static void krealloc_large_less_oob(void) {
  krealloc_less_oob_helper(kMaxCacheSize + 235, kMaxCacheSize + 201);
  krealloc_less_oob_helper(kLargeSize + 235, kLargeSize + 201);
}

static void krealloc_uaf(void) {
  char* ptr1 = malloc(201);
  char* ptr2 = ptr1;
  free(ptr1);
  HIDE(ptr1);
  EXPECT_KASAN_FAIL(SLAB_UAF "|double-free", ptr2 = realloc(ptr1, 235));
  // The kernel returns NULL here; our program goes on with memory of the size it asked for (cases.md).
  EXPECT(ptr2 != ptr1);
  EXPECT_KASAN_FAIL(SLAB_UAF, *(volatile char*)ptr1);
  free(ptr2);
}

struct kunit_case krealloc_cases[] = {
    {"krealloc_more_oob", krealloc_more_oob},
    {"krealloc_less_oob", krealloc_less_oob},
    {"krealloc_large_more_oob", krealloc_large_more_oob},
    {"krealloc_large_less_oob", krealloc_large_less_oob},
    {"krealloc_uaf", krealloc_uaf},
    {NULL, NULL},
};
