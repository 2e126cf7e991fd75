/* Loads and unloads a module again and again while other threads run, and are interrupted by a handler that looks at their
   stacks: busy FILE COUNT. Prints the same as when nothing was moved. */
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { kThreads = 3, kWords = 61 };

static volatile int stop;
static volatile long interruptions, short_stacks;

__attribute__((noipa)) static unsigned mix(const unsigned char *bytes, int count);

/* Where mix was interrupted, its caller must be found. */
static void on_timer(int number) {
  void *frames[32];
  int depth = backtrace(frames, 32);
  for (int n = 0; n < depth; n++) {
    if ((size_t)((char *)frames[n] - (char *)mix) < 48) {
      __atomic_fetch_add(&interruptions, 1, __ATOMIC_RELAXED);
      if (n + 1 == depth) __atomic_fetch_add(&short_stacks, 1, __ATOMIC_RELAXED);
    }
  }
}

static unsigned mix(const unsigned char *bytes, int count) {
  unsigned sum = 1;
  for (int n = 0; n < count; n++) sum = sum * 31 + bytes[n];
  return sum;
}

static void *work(void *unused) {
  unsigned char *bytes = malloc(kWords);
  for (int n = 0; n < kWords; n++) bytes[n] = (unsigned char)n;
  unsigned first = mix(bytes, kWords);
  long wrong = 0;
  while (!stop) wrong += mix(bytes, kWords) != first;
  free(bytes);
  return (void *)wrong;
}

int main(int argc, char **argv) {
  void *warm[4];
  backtrace(warm, 4);
  struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
  sigaction(SIGPROF, &action, NULL);
  struct itimerval every = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_PROF, &every, NULL);
  pthread_t threads[kThreads];
  for (int n = 0; n < kThreads; n++) pthread_create(&threads[n], NULL, work, NULL);
  long sum = 0;
  int count = atoi(argv[2]);
  for (int n = 0; n < count || interruptions < 50; n++) {
    void *module = dlopen(argv[1], RTLD_NOW);
    if (module == NULL) return 1;
    int (*run)(const char *) = (int (*)(const char *))dlsym(module, "plugin_run");
    sum += run("none") != 318;
    dlclose(module);
  }
  stop = 1;
  for (int n = 0; n < kThreads; n++) {
    void *wrong;
    pthread_join(threads[n], &wrong);
    sum += (long)wrong;
  }
  printf("wrong %ld, stacks cut short %ld\n", sum, short_stacks);
  return 0;
}
