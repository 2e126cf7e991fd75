// The door to the kernel: results are values, errno stays, EEXIST protects what is mapped, the injector reaches every
// memory call, sealing leaves only what a strict seccomp filter allows.
#include "runtime/base/os_linux.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/config.h"

namespace penumbra::os {
namespace {

TEST(OsLinux, FailureIsAValueAndErrnoStays) {
  errno = 77;
  const Result opened = open_read("/nonexistent");
  EXPECT_FALSE(opened.ok());
  EXPECT_EQ(opened.error(), ENOENT);
  EXPECT_EQ(errno, 77);
}

TEST(OsLinux, MappingOverSomethingIsRefused) {
  const Result first = map_anonymous(kPageSize);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(map_fixed_noreplace(first.address(), kPageSize).error(), EEXIST);
  EXPECT_TRUE(unmap(first.address(), kPageSize).ok());
}

TEST(OsLinux, InjectedFailureReachesTheCallerAndIsCounted) {
  const std::uint64_t before = memory_calls_made(MemoryCall::kMap);
  set_failure_injector_test_only([](MemoryCall call) { return call == MemoryCall::kMap ? ENOMEM : 0; });
  EXPECT_EQ(map_anonymous(kPageSize).error(), ENOMEM);
  set_failure_injector_test_only(nullptr);
  EXPECT_EQ(memory_calls_made(MemoryCall::kMap), before + 1);
}

TEST(OsLinux, UnreadableMemoryIsReportedNotTouched) {
  const Result page = reserve(AppAddr(), kPageSize);
  ASSERT_TRUE(page.ok());
  char byte = 0;
  EXPECT_FALSE(try_read_memory(page.address(), &byte, 1));
  EXPECT_TRUE(try_read_memory(AppAddr(&page), &byte, 1));
  EXPECT_TRUE(unmap(page.address(), kPageSize).ok());
}

TEST(OsLinux, ASealedProcessOpensNothingButStillMaps) {
  const pid_t child = fork();
  if (child == 0) {
    seal();
    const bool opens = open_read("/proc/self/maps").ok();
    const bool maps = map_anonymous(kPageSize).ok();
    _exit(!opens && maps ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace penumbra::os
