// The door to the kernel: results are values, errno stays, EEXIST protects what is mapped, the injector reaches every
// memory call, sealing leaves only what a strict seccomp filter allows.
#include "runtime/base/os_linux.h"

#include <gtest/gtest.h>
#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
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

TEST(OsLinux, TheCurrentCpuIsTheKernelsNumberOfIt) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    unsigned by_kernel = 0;
    syscall(SYS_getcpu, &by_kernel, nullptr, nullptr);
    EXPECT_EQ(by_kernel, cpu);
    EXPECT_EQ(current_cpu(), cpu);
    EXPECT_LT(current_cpu(), possible_cpus());
  }
  sched_setaffinity(0, sizeof allowed, &allowed);
}

TEST(OsLinux, AnAliasSharesTheMemoryWithoutADescriptor) {
  const Result fd = memfd("test", 0);
  ASSERT_TRUE(fd.ok());
  const int file = static_cast<int>(fd.value());
  ASSERT_TRUE(truncate(file, 2 * kPageSize).ok());
  const Result space = reserve(AppAddr(), 3 * kPageSize);
  ASSERT_TRUE(space.ok());
  const AppAddr original = space.address();
  ASSERT_TRUE(map_file_at(original, 2 * kPageSize, PROT_READ | PROT_WRITE, file, 0).ok());
  ASSERT_TRUE(close(file).ok());
  ASSERT_TRUE(alias(original + kPageSize, original + 2 * kPageSize, kPageSize).ok());
  *(original + kPageSize).ptr<volatile int>() = 42;
  EXPECT_EQ(*(original + 2 * kPageSize).ptr<volatile int>(), 42);
  EXPECT_TRUE(unmap(original, 3 * kPageSize).ok());
}

TEST(OsLinux, MovedPagesArriveAndLeaveZerosBehind) {
  const Result space = map_anonymous(8 * kPageSize);
  ASSERT_TRUE(space.ok());
  const AppAddr from = space.address();
  const AppAddr to = from + 5 * kPageSize;
  for (std::size_t page = 0; page < 3; ++page) *(from + page * kPageSize).ptr<volatile char>() = 'a';
  *to.ptr<volatile char>() = 'z';
  ASSERT_TRUE(move_pages(from, to, 2 * kPageSize).ok());
  EXPECT_EQ(*to.ptr<volatile char>(), 'a');
  EXPECT_EQ(*(to + kPageSize).ptr<volatile char>(), 'a');
  EXPECT_EQ(*from.ptr<volatile char>(), 0);
  EXPECT_EQ(*(from + 2 * kPageSize).ptr<volatile char>(), 'a');
  EXPECT_TRUE(unmap(from, 8 * kPageSize).ok());
}

TEST(OsLinux, PagesThatCannotBeMovedStayAndTheTargetIsMapped) {
  const Result space = map_anonymous(4 * kPageSize);
  ASSERT_TRUE(space.ok());
  *space.address().ptr<volatile char>() = 'a';
  set_failure_injector_test_only([](MemoryCall call) { return call == MemoryCall::kRemap ? ENOMEM : 0; });
  EXPECT_EQ(move_pages(space.address(), space.address() + 2 * kPageSize, kPageSize).error(), ENOMEM);
  set_failure_injector_test_only(nullptr);
  EXPECT_EQ(*space.address().ptr<volatile char>(), 'a');
  *(space.address() + 2 * kPageSize).ptr<volatile char>() = 'b';
  EXPECT_TRUE(unmap(space.address(), 4 * kPageSize).ok());
}

TEST(OsLinux, AFileSizeLimitIsAnErrorAndNoSignal) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{kPageSize, kPageSize};
    setrlimit(RLIMIT_FSIZE, &limit);
    const Result fd = memfd("test", 0);
    const int file = static_cast<int>(fd.value());
    _exit(fd.ok() && truncate(file, kPageSize).ok() && truncate(file, 2 * kPageSize).error() == EFBIG ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
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

// Process ruling 18: the calls that a seal forbids answer by themselves.
TEST(OsLinux, ASealedProcessAsksTheKernelNothingMore) {
  const pid_t pid = fork();
  if (pid == 0) {
    const int tid = os::gettid();
    const int self = os::getpid();
    os::seal();
    const bool filtered = os::gettid() == tid && os::getpid() == self && os::monotonic_ns() == 0 &&
                          os::open_read("/dev/null").error() == EPERM && os::map_anonymous(kPageSize).ok();
    os::seal_strictly();
    _exit(filtered && os::is_sealed() && os::map_anonymous(kPageSize).error() == EPERM ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace penumbra::os
