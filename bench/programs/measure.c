// Runs a command and says what it cost: measure COMMAND [ARGUMENT...]
//
// Prints one line to descriptor 3: user and system time in microseconds, the largest resident set in KiB, the exit
// status (128 + signal for a death by signal). A program of its own, because the resident set that the kernel reports of
// a child begins with its parent's, which for an interpreter is larger than most of what is measured.
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static long long microseconds(struct timeval t) {
  return (long long)t.tv_sec * 1000000 + t.tv_usec;
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  // The environment of the command, not of this program: a preload must not count here.
  const char* preload = getenv("MEASURE_PRELOAD");
  const pid_t child = fork();
  if (child == 0) {
    close(3);
    if (preload != NULL) setenv("LD_PRELOAD", preload, 1);
    unsetenv("MEASURE_PRELOAD");
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    _exit(127);
  }
  int status = 0;
  struct rusage usage;
  if (child < 0 || wait4(child, &status, 0, &usage) != child) return 1;
  dprintf(3, "%lld %lld %ld %d\n", microseconds(usage.ru_utime), microseconds(usage.ru_stime), usage.ru_maxrss,
          WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
  return 0;
}
