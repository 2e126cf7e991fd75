/* Starts a program in a process that refuses something: start trace|mdwe|filter PROGRAM [ARGS]. Exit status 77 where this
   kernel cannot refuse it. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Debian 12's headers do not know it (Linux 6.3). */
#define SET_MDWE 65
#define REFUSE_EXEC_GAIN 1

/* Signals go on to the program as they come, its end becomes ours. */
static int trace(pid_t child) {
  int status;
  while (waitpid(child, &status, 0) == child) {
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
    int number = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
    ptrace(PTRACE_CONT, child, NULL, (void *)(long)number);
  }
  return 77;
}

/* What systemd's MemoryDenyWriteExecute= does: no mprotect with PROT_EXEC. */
static int filter_mprotect(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  const char *how = argv[1];
  if (strcmp(how, "mdwe") == 0 && prctl(SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) != 0) return 77;
  if (strcmp(how, "filter") == 0 && filter_mprotect() != 0) return 77;
  char *preload = getenv("PRELOAD");
  if (strcmp(how, "trace") == 0) {
    pid_t child = fork();
    if (child != 0) return trace(child);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
  }
  setenv("LD_PRELOAD", preload, 1);
  execv(argv[2], argv + 2);
  return 77;
}
