// longjmp in all its names, from the same stack and from a signal stack: dead frames are clean, live ones keep theirs.
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>

#include "support.h"

typedef struct __jmp_buf_tag* jump;
FRAMES_THAT_CALL(jump)

static sigjmp_buf g_from_handler;

static void handler(int signal) {
  char local[100];
  plain_use(local);
  (void)signal;
  plain_siglongjmp(g_from_handler);
}

static void raise_it(jump unused) {
  (void)unused;
  raise(SIGUSR1);
}

__attribute__((noinline)) static void jump_once(void (*leave)(jump)) {
  char live[24];
  plain_use(live);
  jmp_buf buffer;
  if (setjmp(buffer) == 0) {
    outer_frame(leave, buffer);
    EXPECT(0);
  }
  plain_expect_clean_below("after a jump", 20000);
  // The frame that was jumped to is alive: its redzone behind `live` is still there.
  EXPECT(__asan_region_is_poisoned(live, 64) != 0);
}

int main(void) {
  for (int round = 0; round < 20; ++round) {
    jump_once(plain_longjmp);
    jump_once(plain_checked_longjmp);
    jump_once((void (*)(jump))plain_siglongjmp);
  }
  static char signal_stack[1 << 16];
  stack_t stack = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack};
  EXPECT(sigaltstack(&stack, 0) == 0);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = SA_ONSTACK | SA_NODEFER;
  EXPECT(sigaction(SIGUSR1, &action, 0) == 0);
  for (int round = 0; round < 20; ++round) {
    if (sigsetjmp(g_from_handler, 1) == 0) {
      outer_frame(raise_it, 0);
      EXPECT(0);
    }
    plain_expect_clean_below("after a jump from the signal stack", 20000);
  }
  puts("ok");
  return 0;
}
