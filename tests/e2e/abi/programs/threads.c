// Threads that end inside compiled frames, by pthread_exit and by cancellation: who gets their stack finds it clean,
// and so do the destructors that run after them.
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>

#include "support.h"

FRAMES_THAT_CALL(int)

static pthread_key_t g_key;
static int g_destroyed;

static void leave_thread(int unused) {
  (void)unused;
  plain_thread_exit();
}

static void wait_for_cancel(int unused) {
  (void)unused;
  for (;;) pause();
}

__attribute__((noinline)) static void fill_stack(void) {
  char local[2000];
  for (unsigned i = 0; i < sizeof local; ++i) local[i] = (char)i;
  plain_use(local);
}

static void destroy(void* value) {
  plain_expect_clean_below("in a destructor", 20000);
  fill_stack();
  (void)value;
  __atomic_fetch_add(&g_destroyed, 1, __ATOMIC_SEQ_CST);
}

static void* exits(void* unused) {
  plain_expect_clean_below("at a thread's start", 60000);
  pthread_setspecific(g_key, unused);
  outer_frame(leave_thread, 0);
  return 0;
}

static void* is_cancelled(void* unused) {
  plain_expect_clean_below("at a thread's start", 60000);
  pthread_setspecific(g_key, unused);
  outer_frame(wait_for_cancel, 0);
  return 0;
}

static void* returns(void* value) {
  plain_expect_clean_below("at a thread's start", 60000);
  return value;
}

int main(void) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 128 << 10);
  pthread_key_create(&g_key, destroy);
  for (int round = 0; round < 30; ++round) {
    pthread_t threads[3];
    void* result;
    EXPECT(pthread_create(&threads[0], &attributes, exits, &g_key) == 0);
    EXPECT(pthread_create(&threads[1], &attributes, is_cancelled, &g_key) == 0);
    EXPECT(pthread_create(&threads[2], &attributes, returns, &attributes) == 0);
    pthread_cancel(threads[1]);
    for (int i = 0; i < 3; ++i) EXPECT(pthread_join(threads[i], &result) == 0);
    EXPECT(result == &attributes);
  }
  EXPECT(g_destroyed >= 30);
  puts("ok");
  return 0;
}
