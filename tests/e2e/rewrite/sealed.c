/* Puts itself under a filter that leaves what Penumbra needs (process ruling 18) and kills for everything else, then runs
   checks whose slow part has to look, and has a bug: sealed [bug]. `sealed twice` only frees a block twice. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALLOW(number) \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

__attribute__((noinline)) int sum_bytes(const volatile unsigned char *p, int count) {
  int sum = 0;
  for (int n = 0; n < count; n++) sum += p[n];
  return sum;
}

__attribute__((noinline)) void store_behind(volatile char *p, int n) { p[n] = 1; }

int main(int argc, char **argv) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      ALLOW(SYS_mmap), ALLOW(SYS_munmap), ALLOW(SYS_mprotect), ALLOW(SYS_madvise), ALLOW(SYS_futex), ALLOW(SYS_write),
      ALLOW(SYS_exit_group),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  unsigned char *block = malloc(13);
  for (int n = 0; n < 13; n++) block[n] = (unsigned char)n;
  if (argc > 1 && argv[1][0] == 't') {
    free(block);
    free(block);
    write(1, "end\n", 4);
    return 0;
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 77;
  int good = 1;
  for (int n = 0; n < 1000; n++) good &= sum_bytes(block, 13) == 78;
  if (argc > 1) store_behind((char *)block, 13);
  free(block);
  if (good) write(1, "end\n", 4);
  _exit(good ? 0 : 1);
}
