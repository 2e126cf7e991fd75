// kmalloc, its large form, use after free, double and invalid frees, ksize. Sizes and offsets are the kernel's
// (mm/kasan/kasan_test_c.c), 115 = 128 - 8 - 5: the last granule of the object is partial.
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "kunit.h"

static void oob_right(void* allocated, size_t size) {
  volatile char* ptr = allocated;
  HIDE(ptr);
  EXPECT_NO_REPORT(ptr[size - 1] = 'x');
  // In the object's partial granule, in the first whole granule behind it, and a read.
  EXPECT_KASAN_FAIL(SLAB_OOB, ptr[size] = 'x');
  EXPECT_KASAN_FAIL(SLAB_OOB, ptr[size + 5] = 'y');
  EXPECT_KASAN_FAIL(SLAB_OOB, ptr[0] = ptr[size + kGranule + 5]);
  free(allocated);
}

static void kmalloc_oob_right(void) { oob_right(malloc(115), 115); }

static void kmalloc_oob_left(void) {
  char* ptr = malloc(15);
  HIDE(ptr);
  EXPECT_KASAN_FAIL(SLAB_OOB, *(volatile char*)ptr = *(volatile char*)(ptr - 1));
  free(ptr);
}

static void kmalloc_node_oob_right(void) {
  char* ptr = malloc(4096);
  HIDE(ptr);
  EXPECT_KASAN_FAIL(SLAB_OOB, ((volatile char*)ptr)[0] = ((volatile char*)ptr)[4096]);
  free(ptr);
}

// kmalloc_track_caller passes its caller on for the allocation stack; strdup and calloc are our callers in between.
static void kmalloc_track_caller_oob_right(void) {
  char* ptr = strdup("a string of 23 letters.");
  HIDE(ptr);
  EXPECT_KASAN_FAIL(SLAB_OOB, ((volatile char*)ptr)[24] = 'y');
  free(ptr);
  ptr = calloc(5, 23);
  HIDE(ptr);
  EXPECT_KASAN_FAIL(SLAB_OOB, ((volatile char*)ptr)[115] = 'y');
  free(ptr);
}

static void kmalloc_big_oob_right(void) {
  const size_t size = kMaxCacheSize - 256;
  char* ptr = malloc(size);
  HIDE(ptr);
  EXPECT_KASAN_FAIL(SLAB_OOB, ((volatile char*)ptr)[size] = 0);
  free(ptr);
}

static void kmalloc_large_oob_right(void) {
  const size_t sizes[] = {kMaxCacheSize + 10, kLargeSize + 10};
  for (int i = 0; i < 2; ++i) {
    char* ptr = malloc(sizes[i]);
    HIDE(ptr);
    EXPECT_NO_REPORT(((volatile char*)ptr)[sizes[i] - 1] = 0);
    EXPECT_KASAN_FAIL(SLAB_OOB, ((volatile char*)ptr)[sizes[i]] = 0);
    free(ptr);
  }
}

static void kmalloc_large_uaf(void) {
  char* ptr = malloc(kMaxCacheSize + 10);
  HIDE(ptr);
  ((volatile char*)ptr)[0] = 0;
  free(ptr);
  EXPECT_KASAN_FAIL(SLAB_UAF "|use-after-free", ((volatile char*)ptr)[0]);
  // One that is a region of its own gives its memory back at once.
  ptr = malloc(kLargeSize + 10);
  HIDE(ptr);
  ((volatile char*)ptr)[0] = 0;
  free(ptr);
  EXPECT_KASAN_FAILS(2, SLAB_UAF "|use-after-free", kunit_touch_inaccessible(ptr));
}

static void kmalloc_large_invalid_free(void) {
  const size_t sizes[] = {kMaxCacheSize + 10, kLargeSize + 10};
  for (int i = 0; i < 2; ++i) {
    char* ptr = malloc(sizes[i]);
    HIDE(ptr);
    EXPECT_KASAN_FAIL("invalid-free", free(ptr + 1));
    free(ptr);
  }
}

struct words {
  uint64_t words[2];
};

static void kmalloc_oob_16(void) {
  struct words* small = malloc(sizeof(struct words) - 3);
  struct words* whole = malloc(sizeof(struct words));
  memset(whole, 1, sizeof *whole);
  HIDE(small);
  HIDE(whole);
  EXPECT_KASAN_FAIL(SLAB_OOB, *small = *whole);
  free(small);
  free(whole);
}

static void kmalloc_uaf_16(void) {
  struct words* to = malloc(sizeof(struct words));
  struct words* from = malloc(sizeof(struct words));
  memset(from, 1, sizeof *from);
  free(from);
  HIDE(from);
  HIDE(to);
  // A copy by one access, by one call or by two words: the compiler's choice.
  EXPECT_KASAN_FAILS_BETWEEN(1, 2, SLAB_UAF, *to = *from);
  free(to);
}

static void kmalloc_uaf(void) {
  char* ptr = malloc(10);
  free(ptr);
  HIDE(ptr);
  EXPECT_KASAN_FAIL(SLAB_UAF, ((volatile char*)ptr)[8] = 'x');
}

static void kmalloc_uaf2(void) {
  char* first = malloc(43);
  free(first);
  char* second = malloc(43);
  HIDE(first);
  HIDE(second);
  EXPECT_KASAN_FAIL(SLAB_UAF, ((volatile char*)first)[40] = 'x');
  EXPECT(first != second);
  free(second);
}

static void kmalloc_double_free(void) {
  const size_t sizes[] = {1, 43, 4096, kMaxCacheSize + 10, kLargeSize + 10};
  for (int i = 0; i < 5; ++i) {
    char* ptr = malloc(sizes[i]);
    free(ptr);
    HIDE(ptr);
    EXPECT_KASAN_FAIL("double-free", free(ptr));
  }
}

static void kmalloc_invalid_free(void) {
  char* ptr = malloc(200);
  static long no_block[4];
  long on_stack = 0;
  char* p = ptr + 1;
  HIDE(p);
  EXPECT_KASAN_FAIL("invalid-free", free(p));
  p = (char*)&no_block[2];
  HIDE(p);
  EXPECT_KASAN_FAIL("invalid-free", free(p));
  p = (char*)&on_stack;
  HIDE(p);
  EXPECT_KASAN_FAIL("invalid-free", free(p));
  free(ptr);
}

// kfree_sensitive asks ksize() and clears before it frees.
static void kfree_sensitive(void* object) {
  if (object == NULL) return;
  const size_t bytes = malloc_usable_size(object);
  if (bytes != 0) memset(object, 0, bytes);
  free(object);
}

static void kmalloc_double_kzfree(void) {
  char* ptr = malloc(16);
  kfree_sensitive(ptr);
  HIDE(ptr);
  // The size is asked of a freed object, and that is freed again.
  EXPECT_KASAN_FAILS(2, "double-free|invalid-free|" SLAB_UAF, kfree_sensitive(ptr));
}

static void ksize_unpoisons_memory(void) {
  const size_t size = 123;
  char* ptr = malloc(size);
  const size_t real = malloc_usable_size(ptr);
  HIDE(ptr);
  // Asking must not make more bytes accessible than were asked for.
  EXPECT(real >= size);
  EXPECT_NO_REPORT(((volatile char*)ptr)[size - 1] = 'x');
  EXPECT_KASAN_FAIL(SLAB_OOB, ((volatile char*)ptr)[size]);
  EXPECT_KASAN_FAIL(SLAB_OOB, ((volatile char*)ptr)[size + 5]);
  if (real > size) {
    EXPECT_KASAN_FAIL(SLAB_OOB, ((volatile char*)ptr)[real - 1]);
  }
  free(ptr);
}

static void ksize_uaf(void) {
  const size_t size = 128 - kGranule;
  char* ptr = malloc(size);
  free(ptr);
  HIDE(ptr);
  EXPECT_KASAN_FAIL(SLAB_UAF "|double-free|invalid-free", malloc_usable_size(ptr));
  EXPECT_KASAN_FAIL(SLAB_UAF, ((volatile char*)ptr)[0]);
  EXPECT_KASAN_FAIL(SLAB_UAF "|" SLAB_OOB, ((volatile char*)ptr)[size]);
}

struct kunit_case kmalloc_cases[] = {
    {"kmalloc_oob_right", kmalloc_oob_right},
    {"kmalloc_oob_left", kmalloc_oob_left},
    {"kmalloc_node_oob_right", kmalloc_node_oob_right},
    {"kmalloc_track_caller_oob_right", kmalloc_track_caller_oob_right},
    {"kmalloc_big_oob_right", kmalloc_big_oob_right},
    {"kmalloc_large_oob_right", kmalloc_large_oob_right},
    {"kmalloc_large_uaf", kmalloc_large_uaf},
    {"kmalloc_large_invalid_free", kmalloc_large_invalid_free},
    {"kmalloc_oob_16", kmalloc_oob_16},
    {"kmalloc_uaf_16", kmalloc_uaf_16},
    {"kmalloc_uaf", kmalloc_uaf},
    {"kmalloc_uaf2", kmalloc_uaf2},
    {"kmalloc_double_free", kmalloc_double_free},
    {"kmalloc_invalid_free", kmalloc_invalid_free},
    {"kmalloc_double_kzfree", kmalloc_double_kzfree},
    {"ksize_unpoisons_memory", ksize_unpoisons_memory},
    {"ksize_uaf", ksize_uaf},
    {NULL, NULL},
};
