// Atomic operations, 4 and 8 bytes, behind an object of 48 bytes.
//
// The kernel's compound operations (add_unless, inc_not_zero, inc_unless_negative, dec_unless_positive,
// dec_if_positive) check once and then loop; compilers check the load and
// the exchange, or see that the second access is to the same place.
#include <stdlib.h>

#include "kunit.h"

#define RELAXED __ATOMIC_RELAXED
#define ORDER __ATOMIC_SEQ_CST

// `unsafe` lies behind its object, `safe` is fine.
#define DEFINE_ATOMICS(name, type)                                                                                \
  static bool name##_add_unless(type* v, type a, type u) {                                                       \
    type old = __atomic_load_n(v, RELAXED);                                                                      \
    if (old == u) old = u + 1; /* always try, so that the count of accesses does not depend on memory */         \
    return __atomic_compare_exchange_n(v, &old, old + a, false, ORDER, RELAXED);                                 \
  }                                                                                                               \
  static void name##_helper(type* unsafe, type* safe) {                                                          \
    volatile type result;                                                                                         \
    type expected = 0;                                                                                            \
    EXPECT_KASAN_FAIL(SLAB_OOB, result = __atomic_load_n(unsafe, RELAXED));                                       \
    EXPECT_KASAN_FAIL(SLAB_OOB, __atomic_store_n(unsafe, 42, RELAXED));                                           \
    EXPECT_KASAN_FAIL(SLAB_OOB, __atomic_fetch_add(unsafe, 42, ORDER));                                           \
    EXPECT_KASAN_FAIL(SLAB_OOB, __atomic_fetch_sub(unsafe, 42, ORDER));                                           \
    EXPECT_KASAN_FAIL(SLAB_OOB, __atomic_fetch_add(unsafe, 1, RELAXED));                                          \
    EXPECT_KASAN_FAIL(SLAB_OOB, __atomic_fetch_sub(unsafe, 1, RELAXED));                                          \
    EXPECT_KASAN_FAIL(SLAB_OOB, __atomic_fetch_and(unsafe, 42, ORDER));                                           \
    EXPECT_KASAN_FAIL(SLAB_OOB, __atomic_fetch_and(unsafe, ~42, ORDER));                                          \
    EXPECT_KASAN_FAIL(SLAB_OOB, __atomic_fetch_or(unsafe, 42, ORDER));                                            \
    EXPECT_KASAN_FAIL(SLAB_OOB, __atomic_fetch_xor(unsafe, 42, ORDER));                                           \
    EXPECT_KASAN_FAIL(SLAB_OOB, result = __atomic_exchange_n(unsafe, 42, ORDER));                                 \
    EXPECT_KASAN_FAIL(SLAB_OOB, result = __sync_val_compare_and_swap(unsafe, 21, 42));                            \
    EXPECT_KASAN_FAIL(SLAB_OOB,                                                                                   \
                      result = __atomic_compare_exchange_n(unsafe, &expected, 42, false, ORDER, RELAXED));        \
    EXPECT_KASAN_FAIL(SLAB_OOB, result = __atomic_sub_fetch(unsafe, 42, ORDER) == 0);                             \
    EXPECT_KASAN_FAIL(SLAB_OOB, result = __atomic_sub_fetch(unsafe, 1, ORDER) == 0);                              \
    EXPECT_KASAN_FAIL(SLAB_OOB, result = __atomic_add_fetch(unsafe, 1, ORDER) == 0);                              \
    EXPECT_KASAN_FAIL(SLAB_OOB, result = __atomic_add_fetch(unsafe, 42, ORDER) < 0);                              \
    EXPECT_KASAN_FAILS_BETWEEN(1, 2, SLAB_OOB, result = name##_add_unless(unsafe, 42, 42)); /* add_unless */                 \
    EXPECT_KASAN_FAILS_BETWEEN(1, 2, SLAB_OOB, result = name##_add_unless(unsafe, 1, 0));   /* inc_not_zero */               \
    EXPECT_KASAN_FAILS_BETWEEN(1, 2, SLAB_OOB, result = name##_add_unless(unsafe, 1, -1));  /* inc_unless_negative */        \
    EXPECT_KASAN_FAILS_BETWEEN(1, 2, SLAB_OOB, result = name##_add_unless(unsafe, -1, 1));  /* dec_unless_positive */        \
    EXPECT_KASAN_FAILS_BETWEEN(1, 2, SLAB_OOB, result = name##_add_unless(unsafe, -1, 0));  /* dec_if_positive */            \
    /* try_cmpxchg where the place of the expected value is the unsafe one. */                                    \
    EXPECT_KASAN_FAIL(SLAB_OOB, result = *(volatile type*)unsafe == *safe);                                       \
    EXPECT_NO_REPORT(result = __atomic_fetch_add(safe, 1, ORDER));                                                \
    (void)result;                                                                                                 \
  }

DEFINE_ATOMICS(atomic, int)
DEFINE_ATOMICS(atomic_long, long)

static void kasan_atomics(void) {
  char* a1 = calloc(1, 48);
  long* a2 = calloc(1, sizeof(long));
  HIDE(a1);
  HIDE(a2);
  atomic_helper((int*)(a1 + 48), (int*)a2);
  atomic_long_helper((long*)(a1 + 48), a2);
  free(a1);
  free(a2);
}

struct kunit_case atomic_cases[] = {
    {"kasan_atomics", kasan_atomics},
    {0, 0},
};
