/* Threads and their stacks, a mode at a time: program MODE. stacks_test.py says what each must print. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

static volatile long* g_leaked;
static atomic_int g_count;

static void must(int error, const char* what) {
  if (error == 0) return;
  printf("%s: %s\n", what, strerror(error));
  exit(1);
}

static void* leak_a_local(void* unused) {
  volatile long locals[8] = {42};
  g_leaked = locals;
  return NULL;
}

/* A plain load, which rewritten code checks, and one of libc's. */
__attribute__((noinline)) static int read_leaked(void) {
  void* (*volatile copy)(void*, const void*, size_t) = memcpy;
  long local;
  copy(&local, (const void*)g_leaked, sizeof local);
  return local + *g_leaked == 1;
}

static void* nothing(void* argument) {
  ++g_count;
  return argument;
}

__attribute__((noinline)) static long use_up(long depth) {
  volatile char frame[3000];
  frame[0] = (char)depth;
  return use_up(depth + 1) + frame[0];
}

static void* overflow(void* unused) {
  return (void*)use_up(0);
}

/* Overflows once, on a signal stack of its own, and goes on. */
static sigjmp_buf g_back;
static char g_signal_stack[65536];

static void jump_back(int signal, siginfo_t* info, void* context) {
  siglongjmp(g_back, 1);
}

static void* overflow_and_recover(void* unused) {
  const stack_t stack = {g_signal_stack, 0, sizeof g_signal_stack};
  sigaltstack(&stack, NULL);
  if (sigsetjmp(g_back, 1) == 0) use_up(0);
  stack_t now;
  sigaltstack(NULL, &now);
  printf("recovered, own signal stack %s\n", now.ss_sp == g_signal_stack ? "in force" : "lost");
  return NULL;
}

static void* describe(void* unused) {
  pthread_attr_t attributes;
  void* low;
  size_t bytes, guard;
  int here;
  must(pthread_getattr_np(pthread_self(), &attributes), "getattr");
  pthread_attr_getstack(&attributes, &low, &bytes);
  pthread_attr_getguardsize(&attributes, &guard);
  printf("%zu bytes, guard %zu, %s\n", bytes, guard,
         (char*)&here > (char*)low && (char*)&here < (char*)low + bytes ? "here" : "elsewhere");
  pthread_attr_destroy(&attributes);
  return NULL;
}

static void create_with(size_t bytes, size_t guard, void* (*routine)(void*)) {
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  if (bytes != 0) must(pthread_attr_setstacksize(&attributes, bytes), "setstacksize");
  if (guard != (size_t)-1) must(pthread_attr_setguardsize(&attributes, guard), "setguardsize");
  must(pthread_create(&thread, &attributes, routine, NULL), "create");
  must(pthread_join(thread, NULL), "join");
  pthread_attr_destroy(&attributes);
}

static void* wait_to_be_cancelled(void* unused) {
  for (;;) pause();
}

static void* exit_deep(void* unused) {
  char frame[50000];
  memset(frame, 1, sizeof frame);
  pthread_exit((void*)(long)frame[100]);
}

static void* detach_itself(void* unused) {
  pthread_detach(pthread_self());
  return nothing(NULL);
}

/* A guard zone at the low end of its own stack, as a JVM makes and removes one. */
static void* map_its_own_stack(void* unused) {
  pthread_attr_t attributes;
  void* low;
  size_t bytes;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &low, &bytes);
  pthread_attr_destroy(&attributes);
  void* const zone = mmap(low, 16384, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (zone != low) return "mmap";
  if (mprotect(low, 16384, PROT_NONE) != 0) return "mprotect";
  if (munmap(low, 8192) != 0) return "munmap";
  return NULL;
}

static int same_in_thread(void* argument) {
  return 7 + (argument != NULL);
}

static void many_ways(void) {
  pthread_t thread;
  pthread_attr_t detached;
  void* result;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  for (int i = 0; i < 2000; ++i) {
    switch (i % 8) {
      case 0:
        must(pthread_create(&thread, NULL, nothing, (void*)1), "create");
        must(pthread_join(thread, &result), "join");
        if (result != (void*)1) abort();
        break;
      case 1:
        must(pthread_create(&thread, &detached, nothing, NULL), "create detached");
        break;
      case 2:
        must(pthread_create(&thread, NULL, nothing, NULL), "create");
        must(pthread_detach(thread), "detach");
        break;
      case 3:
        must(pthread_create(&thread, NULL, wait_to_be_cancelled, NULL), "create");
        must(pthread_cancel(thread), "cancel");
        must(pthread_join(thread, &result), "join");
        if (result != PTHREAD_CANCELED) abort();
        ++g_count;
        break;
      case 4:
        must(pthread_create(&thread, NULL, exit_deep, NULL), "create");
        must(pthread_join(thread, &result), "join");
        if (result != (void*)1) abort();
        ++g_count;
        break;
      case 5:
        must(pthread_create(&thread, NULL, detach_itself, NULL), "create");
        break;
      case 6: {
        must(pthread_create(&thread, NULL, nothing, NULL), "create");
        int error;
        while ((error = pthread_tryjoin_np(thread, NULL)) == EBUSY) sched_yield();
        must(error, "tryjoin");
        break;
      }
      case 7: {
        thrd_t other;
        int status;
        if (thrd_create(&other, same_in_thread, &status) != thrd_success) abort();
        if (thrd_join(other, &status) != thrd_success || status != 8) abort();
        ++g_count;
        break;
      }
    }
  }
  while (g_count < 2000) usleep(1000);
  printf("%d threads\n", g_count);
}

static void* fork_in_thread(void* on_other) {
  const pid_t child = fork();
  if (child == 0) {
    /* What another thread's stack held is still there; new threads may take that stack. */
    if (*(volatile int*)on_other != 4711) _exit(1);
    for (int i = 0; i < 20; ++i) {
      pthread_t thread;
      if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0) _exit(2);
    }
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return (void*)(long)status;
}

static void* lend_a_local(void* unused) {
  volatile int local = 4711;
  pthread_t thread;
  void* status;
  must(pthread_create(&thread, NULL, fork_in_thread, (void*)&local), "create");
  must(pthread_join(thread, &status), "join");
  return status;
}

int main(int argc, char** argv) {
  const char* const mode = argv[1];
  pthread_t thread;
  void* result;
  if (strcmp(mode, "joined") == 0) {
    must(pthread_create(&thread, NULL, leak_a_local, NULL), "create");
    must(pthread_join(thread, NULL), "join");
    return read_leaked();
  } else if (strcmp(mode, "detached") == 0) {
    must(pthread_create(&thread, NULL, leak_a_local, NULL), "create");
    must(pthread_detach(thread), "detach");
    /* The kernel has left it soon; the next thread but one notices. */
    usleep(200000);
    for (int i = 0; i < 2; ++i) create_with(1 << 20, -1, nothing);
    return read_leaked();
  } else if (strcmp(mode, "overflow") == 0) {
    create_with(0, -1, overflow);
  } else if (strcmp(mode, "small_overflow") == 0) {
    create_with(65536, 65536, overflow);
  } else if (strcmp(mode, "recover") == 0) {
    struct sigaction action = {.sa_sigaction = jump_back, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    create_with(0, -1, overflow_and_recover);
  } else if (strcmp(mode, "describe") == 0) {
    const size_t sizes[] = {0, 16384, 20480, 65536, 1 << 20, 32 << 20};
    const size_t guards[] = {-1, 0, 1, 4096, 5000, 65536};
    create_with(20000, -1, describe);
    for (int s = 0; s < 6; ++s) {
      for (int g = 0; g < 6; ++g) create_with(sizes[s], guards[g], describe);
    }
    pthread_attr_t defaults;
    pthread_attr_init(&defaults);
    pthread_attr_setstacksize(&defaults, 3 << 20);
    must(pthread_setattr_default_np(&defaults), "setattr_default");
    must(pthread_create(&thread, NULL, describe, NULL), "create");
    must(pthread_join(thread, NULL), "join");
    void* const own = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(pthread_attr_setstack(&defaults, own, 1 << 20), "setstack");
    must(pthread_create(&thread, &defaults, describe, NULL), "create");
    must(pthread_join(thread, NULL), "join");
  } else if (strcmp(mode, "ways") == 0) {
    many_ways();
  } else if (strcmp(mode, "fork") == 0) {
    must(pthread_create(&thread, NULL, lend_a_local, NULL), "create");
    must(pthread_join(thread, &result), "join");
    printf("child: %ld\n", (long)result);
  } else if (strcmp(mode, "map") == 0) {
    for (int i = 0; i < 20; ++i) {
      must(pthread_create(&thread, NULL, map_its_own_stack, NULL), "create");
      must(pthread_join(thread, &result), "join");
      if (result != NULL) printf("refused: %s\n", (char*)result);
    }
    puts("mapped");
  }
  return 0;
}
