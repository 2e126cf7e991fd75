// Many threads that end, with destructors that still allocate and free in every round: what they leave behind is what
// the quarantine holds, however many threads there were.
//
// OPTIONS: quarantine=2m:purge_threshold=1m:retain=0
// STDOUT: bounded
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_key_t key;

static void at_exit(void* value) {
  const size_t round = (size_t)value;
  for (int i = 0; i < 100; ++i) free(malloc(100));
  if (round < 10) pthread_setspecific(key, (void*)(round + 1));
}

static void* body(void* unused) {
  (void)unused;
  pthread_setspecific(key, (void*)1);
  void* p[50];
  for (int i = 0; i < 50; ++i) p[i] = malloc(i * 100);
  for (int i = 0; i < 50; ++i) free(p[i]);
  return NULL;
}

static long resident_kib(void) {
  FILE* f = fopen("/proc/self/status", "r");
  char line[256];
  long kib = -1;
  while (fgets(line, sizeof line, f)) {
    if (strncmp(line, "VmRSS:", 6) == 0) kib = atol(line + 6);
  }
  fclose(f);
  return kib;
}

int main(void) {
  pthread_key_create(&key, at_exit);
  long early = 0;
  for (int i = 0; i < 200; ++i) {
    pthread_t thread;
    pthread_create(&thread, NULL, body, NULL);
    pthread_join(thread, NULL);
    if (i == 60) early = resident_kib();
  }
  const long late = resident_kib();
  // By then the quarantine was full: 2 MiB of blocks, sparse in their pages. 140 more threads used 28 MiB of blocks.
  if (late - early < 4 << 10) puts("bounded");
  else printf("%ld KiB grew to %ld\n", early, late);
  return 0;
}
