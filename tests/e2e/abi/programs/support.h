// What the programs of this folder share: a look at the poison below the stack pointer, and code compiled without
// checks (plain.cc) that leaves compiled frames behind.
#pragma once

#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#ifdef __cplusplus
extern "C" {
#endif

void* __asan_region_is_poisoned(void* begin, size_t bytes);

// plain.cc: nothing in here calls __asan_handle_no_return.
void plain_throw(int value);
void plain_longjmp(jmp_buf buffer);
void plain_checked_longjmp(jmp_buf buffer);
void plain_siglongjmp(sigjmp_buf buffer);
void plain_setcontext(ucontext_t* to);
void plain_thread_exit(void);
void plain_exec_true(void);
void plain_use(void* memory);
// The frame address and the poison of [frame address - bytes, frame address - 512): exits with a message if any.
void plain_expect_clean_below(const char* where, size_t bytes);

#ifdef __cplusplus
}
#endif

#define EXPECT(condition)                                             \
  do {                                                                \
    if (!(condition)) {                                               \
      printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

// Three instrumented frames, the innermost of which calls `leave`.
#define FRAMES_THAT_CALL(leave_type)                                                        \
  __attribute__((noinline)) static int inner_frame(void (*leave)(leave_type), leave_type a) { \
    char small[13];                                                                         \
    char large[700];                                                                        \
    plain_use(small);                                                                       \
    plain_use(large);                                                                       \
    leave(a);                                                                               \
    plain_use(small);                                                                       \
    return small[1] + large[2];                                                             \
  }                                                                                         \
  __attribute__((noinline)) static int middle_frame(void (*leave)(leave_type), leave_type a) { \
    long words[33];                                                                         \
    plain_use(words);                                                                       \
    int result = inner_frame(leave, a);                                                     \
    plain_use(words);                                                                       \
    return result + (int)words[3];                                                          \
  }                                                                                         \
  __attribute__((noinline)) static int outer_frame(void (*leave)(leave_type), leave_type a) { \
    char vla[middle_frame == 0 ? 1 : 100];                                                  \
    plain_use(vla);                                                                         \
    int result = middle_frame(leave, a);                                                    \
    plain_use(vla);                                                                         \
    return result + vla[1];                                                                 \
  }
