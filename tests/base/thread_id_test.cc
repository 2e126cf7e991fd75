// The cached thread id and the mark that finds forks nobody announced: real forks, by each way there is.
#include "runtime/base/thread_id.h"

#include <gtest/gtest.h>

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace penumbra {
namespace {

int g_hook_calls = 0;

std::uint32_t kernel_tid() {
  return static_cast<std::uint32_t>(syscall(SYS_gettid));
}

// Runs `body` in a child made by the bare system call; its result is the child's exit status.
template <class Body>
int in_bare_child(Body body) {
  const long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (pid == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(static_cast<pid_t>(pid), &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ThreadId, IsTheKernelsInEveryThread) {
  EXPECT_EQ(current_tid(), kernel_tid());
  std::thread([] { EXPECT_EQ(current_tid(), kernel_tid()); }).join();
}

TEST(ThreadId, IsRightInAChildThatNoHookAnnounced) {
  init_fork_mark();
  current_tid();
  EXPECT_EQ(in_bare_child([] { return current_tid() == kernel_tid() ? 7 : 1; }), 7);
}

TEST(ThreadId, ANewThreadRunsTheHookOnce) {
  static std::atomic<int> calls{0};
  set_new_thread_hook([] { ++calls; });
  std::thread([] {
    current_tid();
    current_tid();
  }).join();
  set_new_thread_hook(nullptr);
  EXPECT_EQ(calls, 1);
}

TEST(ThreadId, AnUnannouncedChildRunsTheHookOnce) {
  init_fork_mark();
  set_unannounced_child_hook([] { ++g_hook_calls; });
  current_tid();
  EXPECT_EQ(g_hook_calls, 0);
  EXPECT_EQ(in_bare_child([] {
              current_tid();
              current_tid();
              return g_hook_calls;
            }),
            1);
  EXPECT_EQ(in_bare_child([] {
              announce_child();
              current_tid();
              return g_hook_calls;
            }),
            0);
  set_unannounced_child_hook(nullptr);
}

}  // namespace
}  // namespace penumbra
