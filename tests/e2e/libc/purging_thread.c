// Process ruling 17, with worker=1: the thread that purges is there when there is something to purge, takes no signal, and
// is gone where a process must be alone, in a child, after confinement and at the end.
//
// OPTIONS: worker=1:purge_threshold=1m:quarantine=0
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

// Threads; `ours` says whether one of them is Penumbra's.
static int threads(int* ours) {
  int count = 0;
  *ours = 0;
  DIR* all = opendir("/proc/self/task");
  for (struct dirent* entry; (entry = readdir(all)) != NULL;) {
    if (entry->d_name[0] == '.') continue;
    ++count;
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
    FILE* file = fopen(path, "r");
    if (file == NULL) continue;
    if (fgets(name, sizeof name, file) != NULL && strcmp(name, "penumbra-purge\n") == 0) *ours = 1;
    fclose(file);
  }
  closedir(all);
  return count;
}

// Well above the threshold, in regions of their own.
static void make_work(void) {
  for (int i = 0; i < 64; ++i) {
    char* volatile block = malloc(512 << 10);
    memset(block, i, 512 << 10);
    free(block);
  }
}

static int is_there(void) {
  for (int i = 0; i < 20000; ++i) {
    int ours;
    make_work();
    threads(&ours);
    if (ours) return 1;
    usleep(1000);
  }
  return 0;
}

static int is_alone(void) {
  int ours;
  return threads(&ours) == 1 && !ours;
}

static volatile sig_atomic_t handled_by = 0;

static void handle(int signal) {
  (void)signal;
  handled_by = (int)syscall(SYS_gettid);
}

static int signals(void) {
  signal(SIGUSR1, handle);
  if (!is_there()) return 1;
  for (int i = 0; i < 1000; ++i) {
    handled_by = 0;
    kill(getpid(), SIGUSR1);
    if (handled_by != getpid()) return 2;
  }
  return 0;
}

static int single(void) {
  return !is_there() || !__libc_single_threaded;
}

static int names(int (*call)(void)) {
  const pid_t plain = fork();
  int expected, got;
  if (plain == 0) _exit(call());
  waitpid(plain, &expected, 0);
  if (!is_there()) return 1;
  got = call();
  // Where the sandbox forbids it, it does so either way.
  return got != WEXITSTATUS(expected) ? 2 : 0;
}

static int new_user(void) {
  return unshare(CLONE_NEWUSER) == 0 ? 0 : errno;
}

static int new_user_by_number(void) {
  return syscall(SYS_unshare, CLONE_NEWUSER) == 0 ? 0 : errno;
}

static int unshares(void) {
  return names(new_user);
}

static int unshares_by_number(void) {
  return names(new_user_by_number);
}

// Who it is afterwards, all of it is.
static int identity(void) {
  if (geteuid() != 0) return 0;
  if (!is_there()) return 1;
  if (setuid(65534) != 0) return 2;
  if (!is_alone()) return 3;
  if (!is_there()) return 4;
  DIR* all = opendir("/proc/self/task");
  int others = 0;
  for (struct dirent* entry; (entry = readdir(all)) != NULL;) {
    char path[300], line[128];
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
    FILE* file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
      if (strncmp(line, "Uid:", 4) == 0 && strstr(line, "65534") == NULL) ++others;
    }
    if (file != NULL) fclose(file);
  }
  return others != 0 ? 5 : 0;
}

static int children(void) {
  if (!is_there()) return 1;
  for (int i = 0; i < 20; ++i) {
    make_work();
    const pid_t child = i % 2 != 0 ? fork() : _Fork();
    if (child == 0) {
      if (!is_alone()) _exit(2);
      make_work();
      _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status != 0) return 3;
  }
  return 0;
}

static int confines(void) {
  if (!is_there()) return 1;
  struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const struct sock_fprog program = {1, allow};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 77;
  for (int i = 0; i < 20; ++i) make_work();
  return !is_alone();
}

static int strict(void) {
  if (!is_there()) return 1;
  for (int i = 0; i < 20; ++i) make_work();
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) != 0) _exit(77);
  free(malloc(10));
  syscall(SYS_exit, 0);
  return 2;
}

static int traced(void) {
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    if (!is_there()) _exit(1);
    _exit(unshare(CLONE_FS) != 0);
  }
  int status;
  waitpid(child, &status, 0);
  ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACECLONE);
  ptrace(PTRACE_CONT, child, NULL, 0);
  for (pid_t stopped; (stopped = waitpid(-1, &status, __WALL)) > 0;) {
    if (!WIFSTOPPED(status)) {
      if (stopped == child) return status;
      continue;
    }
    const int signal = WSTOPSIG(status);
    ptrace(PTRACE_CONT, stopped, NULL, signal == SIGSTOP || signal == SIGTRAP ? 0 : signal);
  }
  return 3;
}

static int ends(void) {
  if (!is_there()) return 1;
  pthread_exit(NULL);
}

static int executes(void) {
  if (!is_there()) return 1;
  make_work();
  execl("/bin/true", "true", (char*)NULL);
  return 2;
}

int main(void) {
  static const struct {
    const char* name;
    int (*run)(void);
  } cases[] = {{"signals", signals},       {"single", single},         {"unshares", unshares},
               {"by number", unshares_by_number}, {"identity", identity}, {"children", children},
               {"confines", confines},     {"strict", strict},         {"traced", traced},
               {"ends", ends},             {"executes", executes}};
  int bad = 0;
  for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      exit(cases[i].run());
    }
    int status;
    waitpid(child, &status, 0);
    if (status != 0 && WEXITSTATUS(status) != 77) {
      printf("%s: status %x\n", cases[i].name, status);
      bad = 1;
    }
  }
  return bad;
}
