// Bit operations on the second long of an object of 9 bytes: each touches the whole long, of which one byte is there.
#include <stdlib.h>

#include "kunit.h"

enum { kBitsPerLong = 64 };

static unsigned long* word_of(int nr, unsigned long* bits) { return bits + nr / kBitsPerLong; }

static unsigned long mask_of(int nr) { return 1ul << (nr % kBitsPerLong); }

// The kernel's atomic operations; the double-underscored ones are plain.
static void set_bit(int nr, unsigned long* p) { __atomic_fetch_or(word_of(nr, p), mask_of(nr), __ATOMIC_RELAXED); }

static void clear_bit(int nr, unsigned long* p) { __atomic_fetch_and(word_of(nr, p), ~mask_of(nr), __ATOMIC_RELAXED); }

static void clear_bit_unlock(int nr, unsigned long* p) {
  __atomic_fetch_and(word_of(nr, p), ~mask_of(nr), __ATOMIC_RELEASE);
}

static void change_bit(int nr, unsigned long* p) {
  __atomic_fetch_xor(word_of(nr, p), mask_of(nr), __ATOMIC_RELAXED);
}

static bool test_and_set_bit(int nr, unsigned long* p) {
  return __atomic_fetch_or(word_of(nr, p), mask_of(nr), __ATOMIC_SEQ_CST) & mask_of(nr);
}

static bool test_and_set_bit_lock(int nr, unsigned long* p) {
  return __atomic_fetch_or(word_of(nr, p), mask_of(nr), __ATOMIC_ACQUIRE) & mask_of(nr);
}

static bool test_and_clear_bit(int nr, unsigned long* p) {
  return __atomic_fetch_and(word_of(nr, p), ~mask_of(nr), __ATOMIC_SEQ_CST) & mask_of(nr);
}

static bool test_and_change_bit(int nr, unsigned long* p) {
  return __atomic_fetch_xor(word_of(nr, p), mask_of(nr), __ATOMIC_SEQ_CST) & mask_of(nr);
}

static bool test_bit(int nr, unsigned long* p) {
  return __atomic_load_n(word_of(nr, p), __ATOMIC_RELAXED) & mask_of(nr);
}

static void plain_write(int nr, unsigned long* p) { *(volatile unsigned long*)word_of(nr, p) = mask_of(nr); }

static bool plain_test(int nr, unsigned long* p) { return *(volatile unsigned long*)word_of(nr, p) & mask_of(nr); }

static void kasan_bitops_generic(void) {
  unsigned long* bits = calloc(1, sizeof *bits + 1);
  volatile bool result;
  HIDE(bits);
  EXPECT_NO_REPORT(set_bit(kBitsPerLong - 1, bits));
  EXPECT_KASAN_FAIL(SLAB_OOB, set_bit(kBitsPerLong, bits));
  EXPECT_KASAN_FAIL(SLAB_OOB, clear_bit(kBitsPerLong, bits));
  EXPECT_KASAN_FAIL(SLAB_OOB, clear_bit_unlock(kBitsPerLong, bits));
  EXPECT_KASAN_FAIL(SLAB_OOB, change_bit(kBitsPerLong, bits));
  EXPECT_KASAN_FAIL(SLAB_OOB, plain_write(kBitsPerLong, bits));
  EXPECT_KASAN_FAIL(SLAB_OOB, result = test_and_set_bit(kBitsPerLong, bits));
  EXPECT_KASAN_FAIL(SLAB_OOB, result = test_and_set_bit_lock(kBitsPerLong, bits));
  EXPECT_KASAN_FAIL(SLAB_OOB, result = test_and_clear_bit(kBitsPerLong, bits));
  EXPECT_KASAN_FAIL(SLAB_OOB, result = test_and_change_bit(kBitsPerLong, bits));
  EXPECT_KASAN_FAIL(SLAB_OOB, result = test_bit(kBitsPerLong, bits));
  EXPECT_KASAN_FAIL(SLAB_OOB, result = plain_test(kBitsPerLong, bits));
  (void)result;
  free(bits);
}

struct kunit_case bitop_cases[] = {
    {"kasan_bitops_generic", kasan_bitops_generic},
    {0, 0},
};
