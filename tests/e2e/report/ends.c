// Reports something (or not) and ends in one of the ways that a process can: ends.c WAY [report].
//
// What the program prints on its way out must be complete and in order, and its own handlers see its own status.
#include <stdio.h>
#include <stdlib.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile size_t g_nine = 9;

static void at_exit(void) { printf("atexit\n"); }

static void on_end(int status, void* unused) {
  (void)unused;
  printf("on_exit %d\n", status);
}

static void at_quick(void) {
  const char text[] = "at_quick_exit\n";
  if (write(1, text, sizeof text - 1) < 0) abort();
}

__attribute__((destructor)) static void destroy(void) { printf("destructor\n"); }

static char* volatile g_block;  // an object that nobody could look at would be optimised away

static void overflow(void) {
  g_block = malloc(8);
  memset(g_block, 1, g_nine);
  free(g_block);
}

static void overflow_at_exit(void) { overflow(); }

int main(int argc, char** argv) {
  const char* const way = argv[1];
  atexit(at_exit);
  on_exit(on_end, NULL);
  at_quick_exit(at_quick);
  if (argc > 2 && strcmp(argv[2], "report") == 0) overflow();
  if (argc > 2 && strcmp(argv[2], "late") == 0) atexit(overflow_at_exit);
  if (strcmp(way, "return") == 0) return 5;
  if (strcmp(way, "exit") == 0) exit(5);
  if (strcmp(way, "_exit") == 0) _exit(5);
  if (strcmp(way, "_Exit") == 0) _Exit(5);
  if (strcmp(way, "quick_exit") == 0) quick_exit(5);
  if (strcmp(way, "syscall") == 0) syscall(SYS_exit_group, 5);
  if (strcmp(way, "pthread_exit") == 0) pthread_exit(NULL);
  if (strcmp(way, "abort") == 0) abort();
  if (strcmp(way, "kill") == 0) kill(getpid(), SIGTERM);
  return 77;
}
