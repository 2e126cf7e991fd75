// A small KUnit for the kernel's KASAN cases in user space: the kernel's test bodies, malloc for kmalloc.
//
// EXPECT_KASAN_FAIL(class, expression): no report may be pending, the expression must cause exactly one, and its title
// must name the class. Everything else must cause none; that is checked after each case. The rest of a case runs on
// after a failure, as in the kernel.
//
// Reports are seen through __asan_set_error_report_callback, so this works compiled with any checks, or none.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kunit_case {
  const char* name;
  void (*run)(void);
};

// One array per file, ended by a null name; main.c lists the files.
extern struct kunit_case kmalloc_cases[], krealloc_cases[], memory_call_cases[], global_cases[], stack_cases[],
    bitop_cases[], atomic_cases[], vmalloc_cases[], mode_cases[];

// Compiled in by the runner: does the compiler check loads and stores inline?
#ifdef KUNIT_INLINE
enum { kInlineChecks = 1 };
#else
enum { kInlineChecks = 0 };
#endif

void kunit_begin(const char* file, int line);
// `classes`: words that are right, separated by '|'. There must have been `least` to `most` reports, all of them right.
void kunit_end(const char* file, int line, const char* classes, int least, int most, const char* expression);
void kunit_fail(const char* file, int line, const char* what);
// Has a report come since the case began, or since the last expectation?
int kunit_pending(void);

// Reads a byte of memory that is gone; the fault that follows the check's report is left behind by a handler. Two
// reports: the check's and the fault's, because region memory is no business of the program's handler.
void kunit_touch_inaccessible(volatile char* p);

#define EXPECT_KASAN_FAILS_BETWEEN(least, most, classes, expression)    \
  do {                                                                 \
    kunit_begin(__FILE__, __LINE__);                                   \
    expression;                                                        \
    kunit_end(__FILE__, __LINE__, classes, least, most, #expression);  \
  } while (0)
#define EXPECT_KASAN_FAILS(count, classes, expression) EXPECT_KASAN_FAILS_BETWEEN(count, count, classes, expression)
#define EXPECT_KASAN_FAIL(classes, expression) EXPECT_KASAN_FAILS(1, classes, expression)

#define EXPECT(condition)                                                        \
  do {                                                                           \
    if (!(condition)) kunit_fail(__FILE__, __LINE__, "not so: " #condition);     \
  } while (0)
#define EXPECT_NO_REPORT(expression)                                                            \
  do {                                                                                          \
    expression;                                                                                 \
    if (kunit_pending()) kunit_fail(__FILE__, __LINE__, "reported, but is right: " #expression); \
  } while (0)

// The compiler forgets what it knew of a variable (the kernel's OPTIMIZER_HIDE_VAR).
#define HIDE(variable) __asm__ volatile("" : "+r"(variable) : : "memory")

#define SLAB_OOB "slab-out-of-bounds"
#define SLAB_UAF "slab-use-after-free"

// Largest object of the kernel's slab (KMALLOC_MAX_CACHE_SIZE on x86-64 with 4 KiB pages).
enum { kMaxCacheSize = 8192, kPage = 4096, kGranule = 8 };
// Beyond any size that an arena serves: a region of its own.
enum { kLargeSize = 48 << 20 };

#ifdef __cplusplus
}
#endif
