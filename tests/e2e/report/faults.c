// Memory that cannot be touched, and what programs do about it: faults.c MODE.
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

static sigjmp_buf g_back;
static volatile int g_calls;

static void say(const char* format, uintptr_t a, uintptr_t b) {
  char text[128];
  const int length = snprintf(text, sizeof text, format, a, b);
  if (write(1, text, (size_t)length) < 0) abort();
}

static void jump_back(int signal, siginfo_t* info, void* context) {
  (void)context;
  say("handler %lu %#lx\n", (uintptr_t)signal, (uintptr_t)info->si_addr);
  siglongjmp(g_back, 1);
}

static void plain_jump_back(int signal) {
  say("plain %lu %lu\n", (uintptr_t)signal, 0);
  siglongjmp(g_back, 1);
}

static char* g_page;

static void open_page(int signal, siginfo_t* info, void* context) {
  (void)signal;
  (void)info;
  (void)context;
  ++g_calls;
  mprotect(g_page, 4096, PROT_READ | PROT_WRITE);
}

static __attribute__((noinline)) int recurse(int n) {
  volatile char frame[4096];
  frame[0] = (char)n;
  return recurse(n + 1) + frame[0];
}

static void* recurse_in_thread(void* unused) {
  (void)unused;
  return (void*)(intptr_t)recurse(0);
}

static void show_alternate_stack(const char* when) {
  stack_t stack;
  sigaltstack(NULL, &stack);
  printf("%s: %d %zu %d\n", when, stack.ss_sp == NULL, stack.ss_size, stack.ss_flags == SS_DISABLE);
}

static void* use_alternate_stacks(void* how) {
  static char memory[16384];
  show_alternate_stack("new thread");
  const stack_t own = {.ss_sp = memory, .ss_size = sizeof memory};
  stack_t before;
  sigaltstack(&own, &before);
  printf("replaces none: %d %d\n", before.ss_sp == NULL, before.ss_flags == SS_DISABLE);
  sigaltstack(NULL, &before);
  printf("own: %d %zu %d\n", before.ss_sp == memory, before.ss_size, before.ss_flags);
  if (strcmp(how, "keep") == 0) return NULL;
  const stack_t off = {.ss_flags = SS_DISABLE};
  sigaltstack(&off, NULL);
  show_alternate_stack("disabled");
  if (strcmp(how, "exit") == 0) pthread_exit(NULL);
  if (strcmp(how, "cancel") == 0) {
    pthread_cancel(pthread_self());
    pthread_testcancel();
  }
  return NULL;
}

static size_t mapped_kilobytes(void) {
  FILE* const file = fopen("/proc/self/statm", "r");
  size_t pages = 0;
  if (file == NULL || fscanf(file, "%zu", &pages) != 1) abort();
  fclose(file);
  return pages * 4;
}

static __attribute__((noinline)) void write_null(void) { *(volatile int*)(uintptr_t)0x18 = 1; }

static void show(const char* what, int signal) {
  struct sigaction action;
  sigaction(signal, NULL, &action);
  printf("%s %s %#x\n", what,
         action.sa_handler == SIG_DFL ? "default"
         : action.sa_handler == SIG_IGN ? "ignored"
         : action.sa_sigaction == jump_back ? "jump_back"
         : action.sa_handler == plain_jump_back ? "plain_jump_back" : "foreign",
         action.sa_flags & ~0x04000000);  // SA_RESTORER
  fflush(stdout);
}

static void set(int signal, void (*handler)(int, siginfo_t*, void*), int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = handler;
  action.sa_flags = flags | SA_SIGINFO;
  sigaction(signal, &action, NULL);
}

int main(int argc, char** argv) {
  const char* const mode = argc > 1 ? argv[1] : "";
  if (strcmp(mode, "null") == 0) {
    write_null();
  } else if (strcmp(mode, "non_canonical") == 0) {
    *(volatile char*)(uintptr_t)0xdead000000001234 = 1;
  } else if (strcmp(mode, "shadow") == 0) {
    return *(volatile char*)(uintptr_t)0x90000000;
  } else if (strcmp(mode, "unmapped") == 0) {
    g_page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(g_page, 4096);
    return *(volatile char*)g_page;
  } else if (strcmp(mode, "overflow") == 0) {
    return recurse(0);
  } else if (strcmp(mode, "thread_overflow") == 0) {
    pthread_t thread;
    pthread_create(&thread, NULL, recurse_in_thread, NULL);
    pthread_join(thread, NULL);
  } else if (strcmp(mode, "thread_stacks") == 0) {
    const char* const ways[] = {"return", "exit", "cancel", "keep"};
    size_t before = 0;
    for (int i = 0; i < 4000; ++i) {
      pthread_t thread;
      if (i == 40) before = mapped_kilobytes();
      if (i == 40 && freopen("/dev/null", "w", stdout) == NULL) return 1;
      pthread_create(&thread, NULL, use_alternate_stacks, (void*)ways[i % 4]);
      pthread_join(thread, NULL);
    }
    return mapped_kilobytes() - before < 4096 ? 5 : 6;
  } else if (strcmp(mode, "bus") == 0) {
    FILE* file = tmpfile();
    g_page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(file), 0);
    return *(volatile char*)g_page;
  } else if (strcmp(mode, "sent") == 0) {
    kill(getpid(), SIGSEGV);
  } else if (strcmp(mode, "queries") == 0) {
    show("start", SIGSEGV);
    set(SIGSEGV, jump_back, SA_RESTART | SA_NODEFER);
    show("sigaction", SIGSEGV);
    printf("signal returns jump_back: %d\n", signal(SIGSEGV, plain_jump_back) == (sighandler_t)(void*)jump_back);
    show("signal", SIGSEGV);
    printf("sysv_signal returns plain: %d\n", sysv_signal(SIGSEGV, SIG_DFL) == plain_jump_back);
    show("sysv_signal", SIGSEGV);
    printf("sigset returns default: %d\n", sigset(SIGSEGV, plain_jump_back) == SIG_DFL);
    printf("sigset returns plain: %d\n", sigset(SIGSEGV, SIG_HOLD) == plain_jump_back);
    printf("sigset returns hold: %d\n", sigset(SIGSEGV, plain_jump_back) == SIG_HOLD);
    show("sigset", SIGSEGV);
    siginterrupt(SIGSEGV, 1);
    signal(SIGSEGV, plain_jump_back);
    show("siginterrupt", SIGSEGV);
    sigignore(SIGSEGV);
    show("sigignore", SIGSEGV);
    printf("bsd_signal returns ignore: %d\n", signal(SIGSEGV, SIG_DFL) == SIG_IGN);
    errno = 0;
    printf("bad signal: %d\n", signal(SIGSEGV, SIG_ERR) == SIG_ERR && errno == EINVAL);
    stack_t stack;
    sigaltstack(NULL, &stack);
    printf("no alternate stack: %d %zu %d\n", stack.ss_sp == NULL, stack.ss_size, stack.ss_flags == SS_DISABLE);
  } else if (strcmp(mode, "handled_null") == 0) {
    set(SIGSEGV, jump_back, 0);
    if (sigsetjmp(g_back, 1) == 0) write_null();
    return 5;
  } else if (strcmp(mode, "handled_plain") == 0) {
    signal(SIGSEGV, plain_jump_back);
    if (sigsetjmp(g_back, 1) == 0) write_null();
    return 5;
  } else if (strcmp(mode, "handled_generated") == 0) {
    // As just-in-time compilers test for null: mov (%rdi),%eax; ret
    static const unsigned char kLoad[] = {0x8b, 0x07, 0xc3};
    void* code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, kLoad, sizeof kLoad);
    set(SIGSEGV, jump_back, 0);
    if (sigsetjmp(g_back, 1) == 0) ((int (*)(const int*))code)(NULL);
    return 5;
  } else if (strcmp(mode, "handled_protection") == 0) {
    // How garbage collectors and persistent heaps work: not a bug, and not reported.
    g_page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    set(SIGSEGV, open_page, 0);
    g_page[0] = 1;
    return g_calls == 1 ? 5 : 6;
  } else if (strcmp(mode, "reset_hand") == 0) {
    set(SIGSEGV, jump_back, (int)SA_RESETHAND);
    if (sigsetjmp(g_back, 1) == 0) write_null();
    show("after", SIGSEGV);
    *(volatile char*)(uintptr_t)0xdead000000001234 = 1;
  } else if (strcmp(mode, "own_stack") == 0) {
    static char stack[16384];
    const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, NULL);
    set(SIGSEGV, jump_back, SA_ONSTACK);
    if (sigsetjmp(g_back, 1) == 0) recurse(0);
    stack_t off = {.ss_flags = SS_DISABLE};
    stack_t before;
    sigaltstack(&off, &before);
    printf("own stack %d\n", before.ss_sp == stack);
    sigaltstack(NULL, &before);
    printf("none left %d\n", before.ss_sp == NULL && before.ss_flags == SS_DISABLE);
    return 5;
  } else if (strcmp(mode, "vfork") == 0) {
    // A child that resets its handlers shares our memory, not our dispositions.
    set(SIGSEGV, jump_back, 0);
    const pid_t child = vfork();
    if (child == 0) {
      struct sigaction action;
      memset(&action, 0, sizeof action);
      action.sa_handler = SIG_DFL;
      sigaction(SIGSEGV, &action, NULL);
      write_null();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("child died of %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    show("parent", SIGSEGV);
    if (sigsetjmp(g_back, 1) == 0) *(volatile char*)(uintptr_t)0x20 = 1;
    return 5;
  } else if (strcmp(mode, "inherited") == 0) {
    show("SEGV", SIGSEGV);
    show("BUS", SIGBUS);
  } else if (strcmp(mode, "spawn_ignored") == 0 || strcmp(mode, "spawn_handled") == 0) {
    if (strcmp(mode, "spawn_ignored") == 0) {
      signal(SIGSEGV, SIG_IGN);
    } else {
      set(SIGSEGV, jump_back, 0);
    }
    pid_t child;
    char* const arguments[] = {argv[0], "inherited", NULL};
    if (posix_spawn(&child, argv[0], NULL, NULL, arguments, environ) != 0) return 1;
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  }
  return 0;
}
