// Makes processes and threads again and again: life WHAT N [PROGRAM [ARGS]]; prints CPU nanoseconds for one, of this process and
// its children. WHAT: fork (a child that ends at once, in a process with 20,000 heap blocks), thread (create and join),
// thread-100k (which touches 100 KB of its stack), start (PROGRAM).
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

static void fail(const char* what) {
  perror(what);
  exit(1);
}

static double cpu_ns(int who) {
  struct rusage usage;
  if (getrusage(who, &usage) != 0) fail("getrusage");
  return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e9 +
         (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e3;
}

static void* touch(void* bytes) {
  const size_t count = (size_t)bytes;
  volatile char memory[count + 1];
  for (size_t i = 0; i < count; i += 64) memory[i] = 1;
  return NULL;
}

static void run_thread(size_t bytes) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, touch, (void*)bytes) != 0) fail("pthread_create");
  if (pthread_join(thread, NULL) != 0) fail("pthread_join");
}

static void wait_for(pid_t child) {
  int status;
  if (waitpid(child, &status, 0) != child || status != 0) fail("child");
}

static void run_fork(void) {
  const pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) _exit(0);
  wait_for(child);
}

static void run_program(char** arguments) {
  pid_t child;
  if (posix_spawnp(&child, arguments[0], NULL, NULL, arguments, environ) != 0) fail(arguments[0]);
  wait_for(child);
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const char* what = argv[1];
  const int count = atoi(argv[2]);
  const int is_fork = strcmp(what, "fork") == 0;
  for (int i = 0; is_fork && i < 20000; ++i) {
    char* const block = malloc((size_t)(i % 500) + 1);
    if (block == NULL) fail("malloc");
    *(volatile char*)block = 1;
  }
  const double before = cpu_ns(RUSAGE_SELF) + cpu_ns(RUSAGE_CHILDREN);
  for (int i = 0; i < count; ++i) {
    if (is_fork) {
      run_fork();
    } else if (strcmp(what, "start") == 0) {
      run_program(argv + 3);
    } else {
      run_thread(strcmp(what, "thread-100k") == 0 ? 100000 : 0);
    }
  }
  printf("%.0f\n", (cpu_ns(RUSAGE_SELF) + cpu_ns(RUSAGE_CHILDREN) - before) / count);
  return 0;
}
