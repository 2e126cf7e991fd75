// A depot with a small budget, and one whose memory is refused; each in a child process, as a process has one depot.
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/options.h"
#include "runtime/base/os_linux.h"
#include "runtime/stacks/depot.h"
#include "runtime/stacks/stacks.h"

#include <gtest/gtest.h>

namespace {

using penumbra::kNoStack;
using penumbra::StackId;
using namespace penumbra::stacks;

StackId put(std::uint64_t n) {
  std::uintptr_t frames[20];
  for (std::size_t i = 0; i < 20; ++i) frames[i] = 0x7f0000000000 + i * 0x1000 + n * 16;
  return depot_put(frames, 20);
}

int run_in_child(int (*body)()) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 200 + WTERMSIG(status);
}

TEST(DepotBudget, FullDepotLosesNewStacksAndKeepsOldOnes) {
  EXPECT_EQ(run_in_child([] {
              penumbra::process_options().depot = 1 << 20;
              const StackId first = put(0);
              if (first == kNoStack) return 1;
              std::uint64_t n = 1;
              while (n < 100000 && put(n) != kNoStack) ++n;
              if (n < 4000 || n > 6000) return 2;  // 1 MiB holds some 5,700 records of 176 bytes
              if (put(200000) != kNoStack) return 3;
              if (put(0) != first || put(n - 1) == kNoStack) return 4;
              const DepotStats stats = depot_stats();
              if (stats.lost != 2 || stats.stacks != n) return 5;
              if (stats.used_bytes > stats.budget_bytes || stats.budget_bytes > (1 << 20)) return 6;
              validate_depot();
              return 0;
            }),
            0);
}

TEST(DepotBudget, ZeroStoresNothing) {
  EXPECT_EQ(run_in_child([] {
              penumbra::process_options().depot = 0;
              return put(1) == kNoStack && depot_stats().budget_bytes == 0 ? 0 : 1;
            }),
            0);
}

// Every memory call fails in turn; then the first succeed and later ones fail.
TEST(DepotBudget, RefusedMemoryCostsStacksNotTheProgram) {
  EXPECT_EQ(run_in_child([] {
              penumbra::os::set_failure_injector_test_only([](penumbra::os::MemoryCall) { return ENOMEM; });
              return put(1) == kNoStack && put(2) == kNoStack ? 0 : 1;
            }),
            0);
  EXPECT_EQ(run_in_child([] {
              penumbra::process_options().depot = 8 << 20;
              if (put(1) == kNoStack) return 1;
              penumbra::os::set_failure_injector_test_only([](penumbra::os::MemoryCall) { return ENOMEM; });
              std::uint64_t n = 2;
              while (n < 100000 && put(n) != kNoStack) ++n;
              if (n == 100000) return 2;
              penumbra::os::set_failure_injector_test_only(nullptr);
              return put(n) != kNoStack && put(1) != kNoStack ? 0 : 3;
            }),
            0);
}

}  // namespace
