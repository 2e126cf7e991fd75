// Memory ruling 17: limits without Penumbra's weight, mlockall without Penumbra's memory. Process ruling 18: the seal.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/os_process.h"
#include "tests/libc/in_child.h"
#include "tests/libc/poisoned_block.h"

namespace penumbra::libc::testing {
namespace {

class Limits : public LibcTest {};
class Locking : public LibcTest {};
class Sealing : public LibcTest {};

constexpr rlim_t kFourGiB = rlim_t{4} << 30;

rlimit64 kernels(int resource) {
  rlimit64 limit{};
  os::limits(static_cast<unsigned>(resource), nullptr, &limit).ignore();
  return limit;
}

bool can_map(std::size_t bytes) {
  void* const p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p != MAP_FAILED) munmap(p, bytes);
  return p != MAP_FAILED;
}

#define CHECK_HERE(condition) \
  if (!(condition)) return fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), 1

TEST_F(Limits, AProgramThatAllowsItselfFourGiBGetsThemAndReadsThem) {
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    EXPECT_EQ(in_child([=] {
                const rlimit limit{kFourGiB, RLIM_INFINITY};
                CHECK_HERE(setrlimit(resource, &limit) == 0);
                rlimit read{};
                CHECK_HERE(getrlimit(resource, &read) == 0);
                CHECK_HERE(read.rlim_cur == kFourGiB && read.rlim_max == RLIM_INFINITY);
                CHECK_HERE(kernels(resource).rlim_cur > kFourGiB);
                CHECK_HERE(can_map(std::size_t{1} << 30));
                CHECK_HERE(!can_map(std::size_t{5} << 30));
                return 0;
              }),
              0)
        << resource;
  }
}

TEST_F(Limits, EveryWayToAskGivesTheSameAnswer) {
  EXPECT_EQ(in_child([] {
              const rlimit limit{kFourGiB, 2 * kFourGiB};
              rlimit old{};
              CHECK_HERE(prlimit(0, RLIMIT_AS, &limit, &old) == 0);
              CHECK_HERE(old.rlim_cur == RLIM_INFINITY);
              rlimit64 a{}, b{}, c{};
              rlimit d{}, e{};
              CHECK_HERE(getrlimit64(RLIMIT_AS, &a) == 0 && prlimit64(getpid(), RLIMIT_AS, nullptr, &b) == 0);
              CHECK_HERE(syscall(SYS_prlimit64, 0, RLIMIT_AS, nullptr, &c) == 0);
              CHECK_HERE(syscall(SYS_getrlimit, RLIMIT_AS, &d) == 0 && getrlimit(RLIMIT_AS, &e) == 0);
              CHECK_HERE(a.rlim_cur == kFourGiB && b.rlim_cur == kFourGiB && c.rlim_cur == kFourGiB);
              CHECK_HERE(d.rlim_cur == kFourGiB && e.rlim_cur == kFourGiB);
              CHECK_HERE(a.rlim_max == 2 * kFourGiB && e.rlim_max == 2 * kFourGiB);
              return 0;
            }),
            0);
}

TEST_F(Limits, AnUnprivilegedProgramMayLowerButNotRaise) {
  EXPECT_EQ(in_child([] {
              rlimit limit{kFourGiB, 2 * kFourGiB};
              CHECK_HERE(setrlimit(RLIMIT_AS, &limit) == 0);
              CHECK_HERE(setuid(65534) == 0);
              CHECK_HERE(setrlimit(RLIMIT_AS, &limit) == 0);  // the same again
              limit = {kFourGiB, kFourGiB + 4096};
              CHECK_HERE(setrlimit(RLIMIT_AS, &limit) == 0);  // a little lower
              rlimit read{};
              CHECK_HERE(getrlimit(RLIMIT_AS, &read) == 0 && read.rlim_max == kFourGiB + 4096);
              limit = {kFourGiB, 2 * kFourGiB};
              CHECK_HERE(setrlimit(RLIMIT_AS, &limit) == -1 && errno == EPERM);
              limit = {kFourGiB + 1, kFourGiB};
              CHECK_HERE(setrlimit(RLIMIT_AS, &limit) == -1 && errno == EINVAL);
              return 0;
            }),
            0);
}

TEST_F(Limits, AChildInheritsWhatItsParentMeant) {
  EXPECT_EQ(in_child([] {
              const rlimit limit{kFourGiB, RLIM_INFINITY};
              CHECK_HERE(setrlimit(RLIMIT_AS, &limit) == 0);
              return in_child([] {
                rlimit read{};
                CHECK_HERE(getrlimit(RLIMIT_AS, &read) == 0 && read.rlim_cur == kFourGiB);
                return 0;
              });
            }),
            0);
}

TEST_F(Limits, ExecGetsTheTrueLimitsAndAFailedOneGivesOursBack) {
  EXPECT_EQ(in_child([] {
              const rlimit limit{kFourGiB, 2 * kFourGiB};
              CHECK_HERE(setrlimit(RLIMIT_AS, &limit) == 0);
              const rlimit64 ours = kernels(RLIMIT_AS);
              before_exec();
              CHECK_HERE(kernels(RLIMIT_AS).rlim_cur == kFourGiB);
              CHECK_HERE(kernels(RLIMIT_AS).rlim_max == 2 * kFourGiB || !os::has_capability(24));
              exec_failed();
              CHECK_HERE(kernels(RLIMIT_AS).rlim_cur == ours.rlim_cur);
              CHECK_HERE(kernels(RLIMIT_AS).rlim_max == ours.rlim_max);
              return 0;
            }),
            0);
}

TEST_F(Limits, AVforkChildsLimitsAreNotItsParents) {
  EXPECT_EQ(in_child([] {
              const pid_t pid = vfork();
              if (pid == 0) {
                const rlimit limit{kFourGiB, RLIM_INFINITY};
                setrlimit(RLIMIT_AS, &limit);
                _exit(0);
              }
              rlimit read{};
              CHECK_HERE(getrlimit(RLIMIT_AS, &read) == 0 && read.rlim_cur == RLIM_INFINITY);
              return 0;
            }),
            0);
}

TEST_F(Limits, OtherLimitsPassStraightThrough) {
  rlimit read{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &read), 0);
  EXPECT_EQ(read.rlim_cur, kernels(RLIMIT_NOFILE).rlim_cur);
  EXPECT_EQ(getrlimit(static_cast<__rlimit_resource>(99), &read), -1);
  EXPECT_EQ(errno, EINVAL);
}

// KiB of /proc/self/status.
long status_kib(const char* field) {
  FILE* const file = fopen("/proc/self/status", "r");
  char line[256];
  long value = -1;
  while (fgets(line, sizeof line, file) != nullptr) {
    if (strncmp(line, field, strlen(field)) == 0) value = atol(line + strlen(field));
  }
  fclose(file);
  return value;
}

TEST_F(Locking, AllOfTheProgramIsLockedAndNothingOfOurs) {
  if (!os::has_capability(14)) GTEST_SKIP() << "may not lock this much memory";
  EXPECT_EQ(in_child([] {
              CHECK_HERE(mlockall(MCL_CURRENT) == 0);
              const long locked = status_kib("VmLck:");
              CHECK_HERE(locked > 1000);
              CHECK_HERE(locked < 2'000'000);  // the shadow alone is 15 TiB
              CHECK_HERE(status_kib("VmRSS:") < 2'000'000);
              CHECK_HERE(munlockall() == 0);
              CHECK_HERE(status_kib("VmLck:") == 0);
              return 0;
            }),
            0);
}

TEST_F(Locking, NewMappingsAreLockedUntilTheProgramSaysStop) {
  if (!os::has_capability(14)) GTEST_SKIP() << "may not lock this much memory";
  EXPECT_EQ(in_child([] {
              constexpr std::size_t kMiB = 1 << 20;
              CHECK_HERE(mlockall(MCL_FUTURE) == 0);
              CHECK_HERE(status_kib("VmLck:") == 0);
              void* const p = mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              CHECK_HERE(p != MAP_FAILED && status_kib("VmLck:") == 1024);
              CHECK_HERE(mmap(nullptr, kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
              CHECK_HERE(in_child([] {
                           mmap(nullptr, kMiB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                           return status_kib("VmLck:") == 0 ? 0 : 1;
                         }) == 0);
              CHECK_HERE(munlockall() == 0);
              mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              CHECK_HERE(status_kib("VmLck:") == 0);
              return 0;
            }),
            0);
}

TEST_F(Locking, ErrorsAreTheKernels) {
  EXPECT_EQ(in_child([] {
              CHECK_HERE(mlockall(0) == -1 && errno == EINVAL);
              CHECK_HERE(mlockall(MCL_ONFAULT) == -1 && errno == EINVAL);
              CHECK_HERE(mlockall(1 << 20) == -1 && errno == EINVAL);
              rlimit limit{4096, 4096};
              CHECK_HERE(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
              CHECK_HERE(setuid(65534) == 0);
              CHECK_HERE(mlockall(MCL_CURRENT) == -1 && errno == ENOMEM);
              CHECK_HERE(mlockall(MCL_FUTURE) == 0);
              CHECK_HERE(mmap(nullptr, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
              CHECK_HERE(errno == EAGAIN);
              munlockall();
              limit = {0, 0};
              CHECK_HERE(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
              CHECK_HERE(mlockall(MCL_CURRENT) == -1 && errno == EPERM);
              return 0;
            }),
            0);
}

// A filter that allows everything.
int install_filter(bool by_prctl) {
  static sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  static const sock_fprog program{1, allow};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (by_prctl) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
  return static_cast<int>(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
}

TEST_F(Sealing, AFilterSealsTheRuntimeHoweverItIsInstalled) {
  for (const bool by_prctl : {false, true}) {
    EXPECT_EQ(in_child([=] {
                CHECK_HERE(!os::is_sealed());
                CHECK_HERE(install_filter(by_prctl) == 0);
                CHECK_HERE(os::is_sealed());
                CHECK_HERE(os::open_read("/dev/null").error() == EPERM);
                CHECK_HERE(os::map_anonymous(kPageSize).ok());
                return 0;
              }),
              0)
        << by_prctl;
  }
}

TEST_F(Sealing, ACallThatFailsOrAsksDoesNotSeal) {
  EXPECT_EQ(in_child([] {
              CHECK_HERE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, nullptr) == -1);
              unsigned action = SECCOMP_RET_ALLOW;
              CHECK_HERE(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0);
              CHECK_HERE(prctl(PR_SET_DUMPABLE, 1) == 0);
              CHECK_HERE(!os::is_sealed());
              return 0;
            }),
            0);
}

TEST_F(Sealing, StrictModeLeavesTheRuntimeNoCallThatWouldKill) {
  EXPECT_EQ(in_child([] {
              if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) return 1;
              const bool refused = os::map_anonymous(kPageSize).error() == EPERM;
              syscall(SYS_exit, refused ? 0 : 2);
              return 3;
            }),
            0);
}

}  // namespace
}  // namespace penumbra::libc::testing
