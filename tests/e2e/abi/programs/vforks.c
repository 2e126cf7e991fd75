// A vfork child that executes a program from inside compiled frames leaves the parent a clean stack.
#define _GNU_SOURCE
#include <errno.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

static void exec_it(int unused) {
  (void)unused;
  plain_exec_true();
}
FRAMES_THAT_CALL(int)

int main(void) {
  for (int round = 0; round < 20; ++round) {
    pid_t child = vfork();
    if (child == 0) {
      outer_frame(exec_it, 0);
      _exit(1);
    }
    EXPECT(child > 0);
    plain_expect_clean_below("after vfork", 30000);
    int status;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  struct rlimit none = {0, 0};
  if (getuid() != 0 && setrlimit(RLIMIT_NPROC, &none) == 0) {
    errno = 0;
    EXPECT(vfork() == -1 && errno == EAGAIN);
  }
  puts("ok");
  return 0;
}
