// main ends by pthread_exit and the process goes on until the last thread is done: ours must not be one of them, and
// the other thread still has a heap (process ruling 17).
//
// STDOUT: last one out
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void* body(void* unused) {
  (void)unused;
  usleep(100000);
  for (int i = 0; i < 1000; ++i) free(malloc(i));
  puts("last one out");
  return NULL;
}

int main(void) {
  pthread_t thread;
  alarm(20);
  pthread_create(&thread, NULL, body, NULL);
  free(malloc(10));
  pthread_exit(NULL);
}
