// penumbra_vfree_atomic in a signal handler that interrupts allocations and frees: it never deadlocks, every area is
// freed once, and a bad call is reported by the next call outside.
//
// EXPECT: BUG: KASAN: double-free in
// STDOUT: freed in handlers: yes
// EXIT: 99
#include <penumbra/penumbra.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

static void* volatile g_ready;
static volatile unsigned long g_freed;

static void on_alarm(int signal) {
  (void)signal;
  void* const area = g_ready;
  if (area == NULL) return;
  g_ready = NULL;
  penumbra_vfree_atomic(area);
  ++g_freed;
}

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_alarm;
  sigaction(SIGALRM, &action, NULL);
  const struct itimerval often = {{0, 200}, {0, 200}};
  setitimer(ITIMER_REAL, &often, NULL);
  for (int i = 0; i < 200000 && g_freed < 200; ++i) {
    char* const area = penumbra_vmalloc(4096 * (size_t)(1 + i % 5));
    area[0] = 1;
    penumbra_vfree(area);
    if (g_ready == NULL) g_ready = penumbra_vzalloc(10000);
  }
  const struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &never, NULL);
  printf("freed in handlers: %s\n", g_freed > 10 ? "yes" : "no");
  char* volatile area = penumbra_vmalloc(4096);
  penumbra_vfree_atomic(area);
  penumbra_vfree_atomic(area);
  penumbra_vfree(penumbra_vmalloc(1));
  return 0;
}
