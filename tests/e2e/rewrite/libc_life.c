// What a rewritten libc must still do: its calls that come back twice or not at all, its cancellation, its signals between a call and
// its return, its sorting, printing, scanning, locales and stacks. Prints the same with and without us.
#define _GNU_SOURCE
#include <errno.h>
#include <locale.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <wchar.h>

extern char** environ;
static volatile int ticks;
static int cleaned;

static void tick(int signal) {
  char text[64];
  snprintf(text, sizeof text, "%d %s", ++ticks, "tick");
  if (syscall(SYS_getpid) != getpid()) _exit(3);
}

static int status_of(pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

static void processes(void) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) _exit(11);
  printf("fork %d\n", WEXITSTATUS(status_of(child)));
  child = vfork();
  if (child == 0) _exit(12);
  printf("vfork %d\n", WEXITSTATUS(status_of(child)));
  child = vfork();
  if (child == 0) execl("/bin/sh", "sh", "-c", "exit 13", (char*)NULL);
  printf("vfork and exec %d\n", WEXITSTATUS(status_of(child)));
  char* argv[] = {"sh", "-c", "exit 14", NULL};
  posix_spawn(&child, "/bin/sh", NULL, NULL, argv, environ);
  printf("posix_spawn %d\n", WEXITSTATUS(status_of(child)));
  printf("system %d\n", WEXITSTATUS(system("exit 15")));
  FILE* pipe = popen("echo from a pipe", "r");
  char line[64] = "";
  if (fgets(line, sizeof line, pipe) == NULL) puts("nothing");
  printf("popen %s", line);
  printf("pclose %d\n", pclose(pipe));
  child = (pid_t)syscall(SYS_fork);
  if (child == 0) _exit(16);
  printf("fork by number %d\n", WEXITSTATUS(status_of(child)));
  execl("/nowhere", "nowhere", (char*)NULL);
  printf("exec of nothing %s\n", strerror(errno));
}

static void clean(void* unused) { ++cleaned; }

static void* waits_in_read(void* end) {
  char c;
  pthread_cleanup_push(clean, NULL);
  while (read(*(int*)end, &c, 1) >= 0) continue;
  pthread_cleanup_pop(1);
  return NULL;
}

static void* waits_in_sleep(void* unused) {
  pthread_cleanup_push(clean, NULL);
  for (;;) sleep(100);
  pthread_cleanup_pop(1);
  return NULL;
}

static void* spins(void* unused) {
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  volatile unsigned long n = 0;
  for (;;) ++n;
  return NULL;
}

static void cancel(const char* what, void* (*body)(void*), void* argument) {
  pthread_t thread;
  void* result = NULL;
  pthread_create(&thread, NULL, body, argument);
  usleep(50000);
  pthread_cancel(thread);
  pthread_join(thread, &result);
  printf("%s %s\n", what, result == PTHREAD_CANCELED ? "canceled" : "not canceled");
}

static void* works(void* number) {
  char text[128];
  long sum = 0;
  for (long n = 0; n < 2000; ++n) {
    snprintf(text, sizeof text, "%ld:%s:%5.2f", n, "text", (double)n / 3);
    sum += (long)strlen(text) + strtol(text, NULL, 10);
    free(strdup(text));
  }
  return (void*)(sum + (long)number);
}

static void threads(void) {
  int pair[2];
  pthread_t workers[4];
  long sum = 0;
  for (long n = 0; n < 4; ++n) pthread_create(&workers[n], NULL, works, (void*)n);
  for (int n = 0; n < 4; ++n) {
    void* one;
    pthread_join(workers[n], &one);
    sum += (long)one;
  }
  printf("threads %ld\n", sum);
  if (pipe(pair) != 0) return;
  cancel("in read", waits_in_read, &pair[0]);
  cancel("in sleep", waits_in_sleep, NULL);
  cancel("anywhere", spins, NULL);
  printf("cleaned %d\n", cleaned);
}

static void signals(void) {
  struct sigaction action = {.sa_handler = tick};
  struct sigaction old;
  sigaction(SIGALRM, &action, &old);
  printf("before %d\n", old.sa_handler == SIG_DFL);
  const struct itimerval often = {{0, 300}, {0, 300}};
  const struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &often, NULL);
  int interrupted = 0;
  char text[256];
  for (int n = 0; n < 100000 && ticks < 200; ++n) {
    snprintf(text, sizeof text, "%d %ld %s", n, (long)time(NULL) & 0, strerror(n % 50));
    struct timespec moment = {0, 100000};
    interrupted += nanosleep(&moment, NULL) != 0 && errno == EINTR;
  }
  setitimer(ITIMER_REAL, &never, NULL);
  printf("signals %d, interrupted %d\n", ticks >= 200, interrupted > 0);
  sigaction(SIGALRM, NULL, &old);
  printf("handler is ours %d\n", old.sa_handler == tick);
  printf("signal() %d\n", signal(SIGALRM, SIG_IGN) == tick);
}

static ucontext_t here, there;
static sigjmp_buf back;

static void context(void) {
  puts("in another context");
  swapcontext(&there, &here);
  puts("again");
}

static void jumps(void) {
  static char stack[65536];
  getcontext(&there);
  there.uc_stack.ss_sp = stack;
  there.uc_stack.ss_size = sizeof stack;
  there.uc_link = &here;
  makecontext(&there, context, 0);
  swapcontext(&here, &there);
  puts("back");
  swapcontext(&here, &there);
  volatile int times = 0;
  if (sigsetjmp(back, 1) < 3) siglongjmp(back, ++times);
  printf("jumped %d\n", times);
}

static int down(const void* a, const void* b) { return *(const int*)b - *(const int*)a; }

static void texts(void) {
  int numbers[1000];
  for (int n = 0; n < 1000; ++n) numbers[n] = n * 7919 % 1009;
  qsort(numbers, 1000, sizeof *numbers, down);
  printf("%d %d %d\n", numbers[0], numbers[500], numbers[999]);
  int a = 0;
  double b = 0;
  char word[32];
  const int count = sscanf("12 3.5 hello", "%d %lf %31s", &a, &b, word);
  printf("%d: %d %g %s\n", count, a, b, word);
  printf("%s %.10e %a %Lf %'d %5s|%-5s|\n", "text", 1.0 / 3, 0.1, 2.5L, 1234567, "ab", "cd");
  setlocale(LC_ALL, "C.UTF-8");
  wchar_t wide[16];
  printf("%zu %ls\n", mbstowcs(wide, "gr\xc3\xbc\xc3\x9f", 16), wide);
  char copy[] = "one,two;;three";
  char* rest = NULL;
  for (char* token = strtok_r(copy, ",;", &rest); token != NULL; token = strtok_r(NULL, ",;", &rest)) puts(token);
  struct tm tm;
  const time_t when = 86400 * 365;
  gmtime_r(&when, &tm);
  strftime(word, sizeof word, "%Y-%m-%d", &tm);
  printf("%s %s %s\n", word, strcasestr("Haystack with Needle", "needle"), strerror(ENOENT));
  setenv("PENUMBRA_LIFE", "a value", 1);
  printf("%s %lu %g\n", getenv("PENUMBRA_LIFE"), strtoul("0x1f", NULL, 0), strtod("1e3", NULL));
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  texts();
  jumps();
  processes();
  threads();
  signals();
  return 0;
}
