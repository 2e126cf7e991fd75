// Coroutines: a suspended context keeps its redzones, a dropped one leaves nothing to the next user of its stack.
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "support.h"

enum { kStackBytes = 64 << 10 };

static ucontext_t g_main, g_coroutine;
static char* g_suspended;

static void yield(int unused) {
  (void)unused;
  swapcontext(&g_coroutine, &g_main);
}
FRAMES_THAT_CALL(int)

static void leave_for_good(ucontext_t* to) {
  char local[90];
  plain_use(local);
  plain_setcontext(to);
}

static void coroutine(void) {
  char live[24];
  plain_expect_clean_below("at a coroutine's start", 30000);
  g_suspended = live;
  plain_use(live);
  outer_frame(yield, 0);
  plain_use(live);
  leave_for_good(&g_main);
}

static void start(ucontext_t* context, char* stack) {
  EXPECT(getcontext(context) == 0);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = kStackBytes;
  context->uc_link = 0;
  makecontext(context, coroutine, 0);
}

static void run(char* stack) {
  volatile int resumed = 0;
  start(&g_coroutine, stack);
  EXPECT(swapcontext(&g_main, &g_coroutine) == 0);
  EXPECT(__asan_region_is_poisoned(g_suspended, 64) != 0);
  plain_expect_clean_below("after a switch", 4000);
  // Resume: its frames must be as they were, and end by setcontext.
  getcontext(&g_main);
  if (resumed == 0) {
    resumed = 1;
    setcontext(&g_coroutine);
  }
  // Again, and dropped in the middle; the next one on the same memory must find it clean.
  start(&g_coroutine, stack);
  EXPECT(swapcontext(&g_main, &g_coroutine) == 0);
}

int main(void) {
  char* stack = mmap(0, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int round = 0; round < 20; ++round) run(stack);
  char* heap_stack = malloc(kStackBytes);
  for (int round = 0; round < 20; ++round) run(heap_stack);
  puts("ok");
  return 0;
}
