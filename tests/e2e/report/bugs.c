// One bug per mode, for report_test.py. Built twice: with debug information, and fortified and stripped of all names.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noipa))

static volatile size_t g_forty_four = 44;
static char g_source[64] = "forty-four bytes of text, and a few more of it";

NOINLINE char* make_block(size_t bytes) { return malloc(bytes); }

NOINLINE void drop_block(char* block) { free(block); }

NOINLINE void overflow(char* block) { memcpy(block, g_source, g_forty_four); }

// Promises its caller as many bytes as were asked for, and allocates eight fewer. The compiler believes the promise: a
// fortified build calls __memcpy_chk with it, which lets 44 of 48 bytes pass.
__attribute__((alloc_size(1))) NOINLINE char* make_short_block(size_t bytes) { return make_block(bytes - 8); }

NOINLINE void overflow_of_promise(void) {
  char* block = make_short_block(48);
  memcpy(block, g_source, g_forty_four);
  drop_block(block);
}

NOINLINE char use_after_free(char* block) {
  static char copy[8];
  memcpy(copy, block, g_forty_four - 36);  // 8 bytes; a size that is known would be no call
  return copy[0];
}

static char* g_handler_block;

static void overflow_in_handler(int signal) {
  (void)signal;
  overflow(g_handler_block);
}

static pthread_barrier_t g_barrier;

NOINLINE void* overflow_in_thread(void* block) {
  pthread_barrier_wait(&g_barrier);
  overflow(block);
  return NULL;
}

static void* other_overflow_in_thread(void* block) {
  pthread_barrier_wait(&g_barrier);
  memmove(block, g_source, g_forty_four + 1);
  return NULL;
}

static int child_status(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char** argv) {
  const char* const mode = argc > 1 ? argv[1] : "";
  char* block = make_block(40);
  if (strcmp(mode, "overflow") == 0) {
    overflow(block);
  } else if (strcmp(mode, "overflow_of_promise") == 0) {
    overflow_of_promise();
  } else if (strcmp(mode, "double_free") == 0) {
    drop_block(block);
    drop_block(block);
    return 0;
  } else if (strcmp(mode, "use_after_free") == 0) {
    drop_block(block);
    return use_after_free(block) == 'x';
  } else if (strcmp(mode, "invalid_free") == 0) {
    drop_block(block + 8);
  } else if (strcmp(mode, "large") == 0) {
    char* large = make_block(1 << 20);
    memset(large + (1 << 20) - 10, 1, g_forty_four - 33);  // 11 bytes
    drop_block(large);
  } else if (strcmp(mode, "inside_realloc") == 0) {
    drop_block(block);
    block = realloc(block, 80);
    return block != NULL ? 1 : 0;
  } else if (strcmp(mode, "repeat") == 0) {
    for (int i = 0; i < 5; ++i) overflow(block);
  } else if (strcmp(mode, "in_handler") == 0) {
    // On the smallest signal stack there is, interrupting malloc again and again until it has happened.
    static char stack[8192];
    const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, NULL);
    struct sigaction action = {.sa_handler = overflow_in_handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGALRM, &action, NULL);
    g_handler_block = block;
    const struct itimerval soon = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &soon, NULL);
    for (int i = 0; i < 200000; ++i) drop_block(make_block((size_t)(i % 500)));
    const struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
  } else if (strcmp(mode, "two_threads") == 0) {
    pthread_t threads[2];
    char* other = make_block(40);
    pthread_barrier_init(&g_barrier, NULL, 2);
    pthread_create(&threads[0], NULL, overflow_in_thread, block);
    pthread_create(&threads[1], NULL, other_overflow_in_thread, other);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
  } else if (strcmp(mode, "closed_stdio") == 0) {
    close(0);
    close(1);
    close(2);
    overflow(block);
    // The descriptors that the program gets next are the lowest ones, as without us.
    _exit(open("/dev/null", O_RDONLY) == 0 ? 0 : 1);
  } else if (strcmp(mode, "child_reports") == 0) {
    const pid_t child = fork();
    if (child == 0) {
      overflow(block);
      exit(3);
    }
    printf("child %d\n", child_status(child));
    return 5;
  } else if (strcmp(mode, "parent_reports") == 0) {
    overflow(block);
    const pid_t child = fork();
    if (child == 0) exit(3);
    printf("child %d\n", child_status(child));
    return 5;
  } else if (strcmp(mode, "closed_plugin") == 0) {
    // The stack of an allocation names code that is gone when it is printed.
    void* plugin = dlopen(argv[2], RTLD_NOW);
    char* (*plugin_allocate)(size_t) = (char* (*)(size_t))dlsym(plugin, "plugin_allocate");
    char* theirs = plugin_allocate(40);
    dlclose(plugin);
    overflow(theirs);
  } else if (strcmp(mode, "chroot") == 0) {
    if (chroot(argv[2]) != 0) return 77;
    overflow(block);
  } else if (strcmp(mode, "no_child_seen") == 0) {
    // A helper process that the program could see would be waited for here.
    overflow(block);
    errno = 0;
    const pid_t seen = waitpid(-1, NULL, 0);
    printf("waitpid %d errno %s\n", (int)seen, strerrorname_np(errno));
    fflush(stdout);
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGCHLD) ? 1 : 0;
  } else if (strcmp(mode, "descriptors") == 0) {
    int before[64];
    int after[64];
    for (int i = 0; i < 64; ++i) before[i] = fcntl(i, F_GETFD);
    overflow(block);
    for (int i = 0; i < 64; ++i) after[i] = fcntl(i, F_GETFD);
    return memcmp(before, after, sizeof before) == 0 ? 0 : 1;
  }
  free(block);
  return 0;
}
