// Process ruling 18: under a filter that kills every call but the few that are left to us, the heap works and a bug is
// still reported; strict mode kills nobody who only writes and leaves.
//
// EXPECT: ^BUG: KASAN: slab-out-of-bounds in
// EXPECT: ^Checked call: memset\(\)
// STDOUT: filtered child: 99
// STDOUT: strict child: 7
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile size_t bytes = 41;

#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void filter(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      ALLOW(mmap), ALLOW(munmap), ALLOW(mprotect), ALLOW(madvise), ALLOW(futex), ALLOW(write), ALLOW(exit_group),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) _exit(3);
}

static void churn(void) {
  void* kept[64] = {0};
  for (int i = 0; i < 50000; ++i) {
    free(kept[i % 64]);
    kept[i % 64] = malloc(i * 37 % (i % 100 == 0 ? 300000 : 2000) + 1);
  }
}

static void report_child(const char* what, pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFEXITED(status)) printf("%s: %d\n", what, WEXITSTATUS(status));
  else printf("%s: killed by %d\n", what, WTERMSIG(status));
}

int main(void) {
  pid_t pid = fork();
  if (pid == 0) {
    filter();
    churn();
    char* p = malloc(40);
    memset(p, 0, bytes);
    exit(0);
  }
  report_child("filtered child", pid);
  pid = fork();
  if (pid == 0) {
    void* p = malloc(100);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) _exit(3);
    free(p);
    p = malloc(50);
    memset(p, 0, 50);
    free(p);
    syscall(SYS_exit, 7);
  }
  report_child("strict child", pid);
  return 0;
}
