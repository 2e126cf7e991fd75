// Threads that are cancelled inside compiled frames with destructors: those run on top of the dead frames.
#include <pthread.h>
#include <unistd.h>

#include "support.h"

static int g_destroyed;

static void wait_for_cancel(int) {
  for (;;) pause();
}

FRAMES_THAT_CALL(int)

namespace {

__attribute__((noinline)) int fill(int n) {
  volatile char local[300];
  volatile int words[40];
  for (int i = 0; i < 300; ++i) local[i] = static_cast<char>(i);
  for (int i = 0; i < 40; ++i) words[i] = local[i] + n;
  return words[n % 40] + (n > 0 ? fill(n - 1) : 0);
}

struct Guard {
  ~Guard() {
    fill(8);
    __atomic_fetch_add(&g_destroyed, 1, __ATOMIC_SEQ_CST);
  }
};

__attribute__((noinline)) int guarded(int depth) {
  Guard guard;
  char live[30];
  plain_use(live);
  const int below = depth > 0 ? guarded(depth - 1) : outer_frame(wait_for_cancel, 0);
  plain_use(live);
  return below + live[2];
}

void* body(void*) {
  guarded(3);
  return nullptr;
}

}  // namespace

int main() {
  for (int round = 0; round < 20; ++round) {
    pthread_t thread;
    void* result;
    EXPECT(pthread_create(&thread, nullptr, body, nullptr) == 0);
    pthread_cancel(thread);
    EXPECT(pthread_join(thread, &result) == 0);
    EXPECT(result == PTHREAD_CANCELED);
  }
  EXPECT(g_destroyed >= 4);
  puts("ok");
}
