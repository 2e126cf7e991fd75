// Memory ruling 17: a program that allows itself 4 GiB of address space gets them, and so do those it starts.
//
// NEVER: .
// STDOUT: 4294967296 4294967296
// STDOUT: mapped 1 GiB, not 5 GiB
// STDOUT: malloc works
// STDOUT: checked child: 4194304
// STDOUT: spawned child: 4194304
// STDOUT: unchecked child: 4194304
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

static int can_map(size_t bytes) {
  void* p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return 0;
  munmap(p, bytes);
  return 1;
}

int main(void) {
  struct rlimit limit = {4ul << 30, 4ul << 30};
  if (setrlimit(RLIMIT_AS, &limit) != 0 || getrlimit(RLIMIT_AS, &limit) != 0) return 1;
  printf("%lu %lu\n", (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
  if (can_map(1ul << 30) && !can_map(5ul << 30)) puts("mapped 1 GiB, not 5 GiB");
  for (int i = 0; i < 1000; ++i) free(malloc(1 << 20));
  puts("malloc works");
  fflush(stdout);
  if (fork() == 0) execl("/bin/sh", "sh", "-c", "echo checked child: $(ulimit -v)", (char*)0);
  wait(0);
  char* arguments[] = {"sh", "-c", "echo spawned child: $(ulimit -v)", 0};
  pid_t pid;
  if (posix_spawn(&pid, "/bin/sh", 0, 0, arguments, environ) == 0) waitpid(pid, 0, 0);
  if (fork() == 0) {
    char* bare[] = {"PATH=/bin:/usr/bin", 0};
    execle("/bin/sh", "sh", "-c", "echo unchecked child: $(ulimit -v)", (char*)0, bare);
  }
  wait(0);
  return 0;
}
