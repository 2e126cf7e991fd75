// mem* and str* on heap objects: through the library's functions, whatever the compiler makes of the calls.
#include <stdlib.h>
#include <string.h>

#include "kunit.h"

static void kmalloc_oob_in_memset(void) {
  size_t size = 128 - kGranule;
  size_t memset_size = size + kGranule;
  char* ptr = malloc(size);
  HIDE(ptr);
  HIDE(memset_size);
  EXPECT_KASAN_FAIL(SLAB_OOB, memset(ptr, 0, memset_size));
  free(ptr);
}

static void memset_over_end(size_t bytes) {
  const size_t size = 128 - kGranule;
  char* ptr = malloc(size);
  HIDE(ptr);
  HIDE(bytes);
  // Only the last byte lies behind the object.
  EXPECT_KASAN_FAIL(SLAB_OOB, memset(ptr + size - (bytes - 1), 0, bytes));
  free(ptr);
}

static void kmalloc_oob_memset_2(void) { memset_over_end(2); }

static void kmalloc_oob_memset_4(void) { memset_over_end(4); }

static void kmalloc_oob_memset_8(void) { memset_over_end(8); }

static void kmalloc_oob_memset_16(void) { memset_over_end(16); }

static void kmalloc_memmove_negative_size(void) {
  volatile size_t invalid_size = (size_t)-2;
  char* ptr = malloc(64);
  memset(ptr, 0, 64);
  HIDE(ptr);
  EXPECT_KASAN_FAIL("out-of-bounds", memmove(ptr, ptr + 4, invalid_size));
  free(ptr);
}

static void kmalloc_memmove_invalid_size(void) {
  volatile size_t invalid_size = 64;
  char* ptr = malloc(64);
  memset(ptr, 0, 64);
  HIDE(ptr);
  EXPECT_KASAN_FAIL(SLAB_OOB, memmove(ptr, ptr + 4, invalid_size));
  free(ptr);
}

static void kmalloc_uaf_memset(void) {
  size_t size = 33;
  char* ptr = malloc(size);
  free(ptr);
  HIDE(ptr);
  HIDE(size);
  EXPECT_KASAN_FAIL(SLAB_UAF, memset(ptr, 0, size));
}

static void kasan_memchr(void) {
  size_t size = 24;
  char* ptr = calloc(1, size);
  HIDE(ptr);
  HIDE(size);
  void* volatile result;
  EXPECT_KASAN_FAIL(SLAB_OOB, result = memchr(ptr, '1', size + 1));
  (void)result;
  free(ptr);
}

static void kasan_memcmp(void) {
  size_t size = 24;
  char* ptr = calloc(1, size);
  char arr[25];
  memset(arr, 0, sizeof arr);
  HIDE(ptr);
  HIDE(size);
  volatile int result;
  EXPECT_KASAN_FAIL(SLAB_OOB, result = memcmp(ptr, arr, size + 1));
  (void)result;
  free(ptr);
}

static void kasan_strings(void) {
  size_t size = 24;
  char* ptr = malloc(size);
  strcpy(ptr, "f0cacc1a");
  free(ptr);
  HIDE(ptr);
  // More than 16 bytes in, so that a freed object's own bookkeeping would not be in the way.
  ptr += 16;
  volatile size_t result;
  EXPECT_KASAN_FAIL(SLAB_UAF, result = (size_t)strchr(ptr, '1'));
  EXPECT_KASAN_FAIL(SLAB_UAF, result = (size_t)strrchr(ptr, '1'));
  EXPECT_KASAN_FAIL(SLAB_UAF, result = (size_t)strcmp(ptr, "2"));
  EXPECT_KASAN_FAIL(SLAB_UAF, result = (size_t)strncmp(ptr, "2", 1));
  EXPECT_KASAN_FAIL(SLAB_UAF, result = strlen(ptr));
  EXPECT_KASAN_FAIL(SLAB_UAF, result = strnlen(ptr, 1));
  (void)result;
}

struct kunit_case memory_call_cases[] = {
    {"kmalloc_oob_in_memset", kmalloc_oob_in_memset},
    {"kmalloc_oob_memset_2", kmalloc_oob_memset_2},
    {"kmalloc_oob_memset_4", kmalloc_oob_memset_4},
    {"kmalloc_oob_memset_8", kmalloc_oob_memset_8},
    {"kmalloc_oob_memset_16", kmalloc_oob_memset_16},
    {"kmalloc_memmove_negative_size", kmalloc_memmove_negative_size},
    {"kmalloc_memmove_invalid_size", kmalloc_memmove_invalid_size},
    {"kmalloc_uaf_memset", kmalloc_uaf_memset},
    {"kasan_memchr", kasan_memchr},
    {"kasan_memcmp", kasan_memcmp},
    {"kasan_strings", kasan_strings},
    {NULL, NULL},
};
