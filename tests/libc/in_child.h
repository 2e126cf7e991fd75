// Runs a body in a forked child, for what would spoil the process of the other tests: limits, locks, filters.
//
// zone: hosted
#pragma once

#include <sys/wait.h>
#include <unistd.h>

namespace penumbra::libc::testing {

// What the child ended with: its exit status, or 1000 + the signal that killed it.
template <class Body>
int in_child(Body body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

}  // namespace penumbra::libc::testing
