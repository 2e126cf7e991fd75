// Children of a process whose other threads are inside malloc and free at that moment: by fork, by _Fork and by the
// bare system call, which run no handlers. Each child can allocate, free, and fork again.
//
// STDOUT: 60 children
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int stop;

static void* churn(void* seed) {
  unsigned state = (unsigned)(size_t)seed;
  while (!stop) {
    void* block[64];
    for (int i = 0; i < 64; ++i) block[i] = malloc(rand_r(&state) % 5000 + (i == 0 ? 300000 : 0));
    for (int i = 0; i < 64; ++i) free(block[i]);
  }
  return NULL;
}

static int use_heap(void) {
  alarm(20);  // a lock that nobody holds any more would hang the child
  for (int i = 0; i < 300; ++i) {
    char* p = malloc(i * 40 + 1);
    if (p == NULL) return 1;
    p[0] = 1;
    free(p);
  }
  free(malloc(1 << 20));
  return 0;
}

static pid_t make_child(int how) {
  switch (how) {
    case 0: return fork();
    case 1: return _Fork();
    default: return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  }
}

int main(void) {
  pthread_t threads[3];
  for (size_t i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, churn, (void*)(i + 1));
  int good = 0;
  for (int i = 0; i < 60; ++i) {
    const pid_t child = make_child(i % 3);
    if (child == 0) {
      int result = use_heap();
      if (result == 0 && i % 3 == 0) {
        const pid_t grandchild = fork();
        if (grandchild == 0) _exit(use_heap());
        int status;
        waitpid(grandchild, &status, 0);
        result = status;
      }
      _exit(result == 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    good += status == 0;
  }
  stop = 1;
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
  printf("%d children\n", good);
  return 0;
}
