// A fault's whole way to its text, with sources that are invented and a log file that is read back. Processes that
// end are children of the test.
#include "runtime/report/report.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/os_linux.h"
#include "runtime/report/exit_status.h"
#include "runtime/report/own_stack.h"
#include "runtime/report/report_lock.h"
#include "runtime/report/seen_places.h"
#include "runtime/report/sink.h"

namespace penumbra::report {
namespace {

Options g_options;
std::atomic<int> g_inside{0};
std::atomic<int> g_most_inside{0};

Fault bad_free(std::uintptr_t pc) {
  Fault fault;
  fault.kind = FaultKind::kInvalidFree;
  fault.addr = AppAddr(std::uintptr_t{0x20000000});
  fault.context.pc = pc;
  return fault;
}

// Watches that no two threads are here at once, and gives the other one time to try.
bool slow_describe(AppAddr, heap::BlockInfo&) {
  const int inside = ++g_inside;
  g_most_inside = std::max(g_most_inside.load(), inside);
  usleep(20'000);
  --g_inside;
  return false;
}

bool faulting_describe(AppAddr, heap::BlockInfo&) {
  raise_fault(bad_free(0x7777));
  return false;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::size_t count(const std::string& text, const std::string& piece) {
  std::size_t n = 0;
  for (std::size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) ++n;
  return n;
}

struct Outcome {
  int status;
  std::string log;
};

// Runs `body` in a child process with fresh reports that go to a file.
Outcome run(const std::string& options, const Sources& sources, const std::function<void()>& body) {
  const std::string pattern = testing::TempDir() + "penumbra_report_test.%p";
  const pid_t child = fork();
  if (child == 0) {
    parse_options(g_options, options.c_str(), nullptr, nullptr);
    snprintf(g_options.log_path, sizeof g_options.log_path, "%s", pattern.c_str());
    init_reports(g_options, sources, nullptr);
    body();
    ::_exit(final_status(7));
  }
  int status = 0;
  waitpid(child, &status, 0);
  const std::string path = testing::TempDir() + "penumbra_report_test." + std::to_string(child);
  const std::string log = read_file(path);
  unlink(path.c_str());
  return {status, log};
}

TEST(Report, AFaultBecomesTextAndTheExitStatusChanges) {
  const Outcome outcome = run("", {}, [] { raise_fault(bad_free(0x1000)); });
  EXPECT_NE(outcome.log.find("BUG: KASAN: invalid-free in "), std::string::npos) << outcome.log;
  EXPECT_EQ(WEXITSTATUS(outcome.status), 99);
}

TEST(Report, WithoutAFaultTheStatusIsTheProgramsOwn) {
  const Outcome outcome = run("", {}, [] {});
  EXPECT_EQ(outcome.log, "");
  EXPECT_EQ(WEXITSTATUS(outcome.status), 7);
}

TEST(Report, ExitcodeZeroLeavesTheProgramsOwn) {
  const Outcome outcome = run("exitcode=0", {}, [] { raise_fault(bad_free(0x1000)); });
  EXPECT_NE(outcome.log, "");
  EXPECT_EQ(WEXITSTATUS(outcome.status), 7);
}

TEST(Report, EachFaultyPlaceIsReportedOnceAndRepeatsAreCounted) {
  const Outcome outcome = run("", {}, [] {
    for (int i = 0; i < 3; ++i) {
      raise_fault(bad_free(0x1000));
      raise_fault(bad_free(0x2000));
    }
    say_repeats();
  });
  EXPECT_EQ(count(outcome.log, "BUG: KASAN:"), 2u);
  EXPECT_NE(outcome.log.find("penumbra: 4 more at places that were reported\n"), std::string::npos) << outcome.log;
}

TEST(Report, TheSamePlaceWithAnotherClassIsAnotherFault) {
  const Outcome outcome = run("", {}, [] {
    raise_fault(bad_free(0x1000));
    Fault twice = bad_free(0x1000);
    twice.kind = FaultKind::kDoubleFree;
    raise_fault(twice);
  });
  EXPECT_EQ(count(outcome.log, "BUG: KASAN:"), 2u);
}

TEST(Report, MultiShotReportsEveryTime) {
  const Outcome outcome = run("multi_shot=1", {}, [] {
    for (int i = 0; i < 3; ++i) raise_fault(bad_free(0x1000));
  });
  EXPECT_EQ(count(outcome.log, "BUG: KASAN:"), 3u);
}

TEST(Report, PanicEndsTheProcessWithExitcode) {
  const Outcome outcome = run("fault=panic:exitcode=42", {}, [] { raise_fault(bad_free(0x1000)); });
  EXPECT_EQ(count(outcome.log, "BUG: KASAN:"), 1u);
  ASSERT_TRUE(WIFEXITED(outcome.status));
  EXPECT_EQ(WEXITSTATUS(outcome.status), 42);
}

TEST(Report, PanicWithoutAnExitcodeAborts) {
  const Outcome outcome = run("halt_on_error=1:exitcode=0", {}, [] {
    signal(SIGABRT, SIG_IGN);
    raise_fault(bad_free(0x1000));
  });
  ASSERT_TRUE(WIFSIGNALED(outcome.status));
  EXPECT_EQ(WTERMSIG(outcome.status), SIGABRT);
}

TEST(Report, PanicOnWriteLetsReadsPassAndStopsFrees) {
  Fault read = bad_free(0x1000);
  read.kind = FaultKind::kWrappedAccess;
  Outcome outcome = run("fault=panic_on_write", {}, [read] { raise_fault(read); });
  EXPECT_EQ(WEXITSTATUS(outcome.status), 99);
  EXPECT_NE(outcome.log, "");
  outcome = run("fault=panic_on_write:exitcode=42", {}, [read] {
    Fault write = read;
    write.is_write = true;
    raise_fault(write);
    ::_exit(1);
  });
  EXPECT_EQ(WEXITSTATUS(outcome.status), 42);
  outcome = run("fault=panic_on_write:exitcode=42", {}, [] {
    raise_fault(bad_free(0x1000));
    ::_exit(1);
  });
  EXPECT_EQ(WEXITSTATUS(outcome.status), 42);
}

TEST(Report, TwoThreadsAtOnceBothCompleteOneAfterTheOther) {
  Sources sources;
  sources.describe_block = slow_describe;
  const Outcome outcome = run("", sources, [] {
    std::vector<std::thread> threads;
    for (std::uintptr_t i = 0; i < 4; ++i) threads.emplace_back([i] { raise_fault(bad_free(0x1000 + i)); });
    for (std::thread& thread : threads) thread.join();
    if (g_most_inside != 1) ::_exit(1);
  });
  EXPECT_EQ(count(outcome.log, "BUG: KASAN:"), 4u);
  EXPECT_EQ(count(outcome.log, std::string(66, '=') + "\n"), 8u);
  EXPECT_EQ(WEXITSTATUS(outcome.status), 99);
}

TEST(Report, AFaultInsideAReportIsOneLine) {
  Sources sources;
  sources.describe_block = faulting_describe;
  const Outcome outcome = run("", sources, [] { raise_fault(bad_free(0x1000)); });
  EXPECT_EQ(count(outcome.log, "BUG: KASAN:"), 1u);
  EXPECT_NE(outcome.log.find("penumbra: a fault inside a report is not reported (pc 0x7777"), std::string::npos)
      << outcome.log;
}

TEST(Report, AChildThatReportedNothingKeepsItsStatus) {
  const Outcome outcome = run("", {}, [] {
    raise_fault(bad_free(0x1000));
    const pid_t child = fork();
    if (child == 0) {
      fork_child();
      ::_exit(final_status(3));
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WEXITSTATUS(status) != 3) ::_exit(1);
  });
  EXPECT_EQ(WEXITSTATUS(outcome.status), 99);
}

TEST(Report, AChildMadeWithoutForkHooksDecidesForItselfToo) {
  const Outcome outcome = run("", {}, [] {
    raise_fault(bad_free(0x1000));
    const pid_t child = fork();
    if (child == 0) {
      if (has_reported()) ::_exit(1);
      raise_fault(bad_free(0x2000));
      ::_exit(final_status(3));
    }
    int status = 0;
    waitpid(child, &status, 0);
    unlink((testing::TempDir() + "penumbra_report_test." + std::to_string(child)).c_str());
    if (WEXITSTATUS(status) != 99) ::_exit(2);
  });
  EXPECT_EQ(WEXITSTATUS(outcome.status), 99);
}

TEST(Report, AVforkChildsReportIsNotItsParents) {
  const Outcome outcome = run("", {}, [] {
    const pid_t child = vfork();
    if (child == 0) {
      raise_fault(bad_free(0x1000));
      ::_exit(final_status(3));
    }
    int status = 0;
    waitpid(child, &status, 0);
    unlink((testing::TempDir() + "penumbra_report_test." + std::to_string(child)).c_str());
    if (WEXITSTATUS(status) != 99) ::_exit(2);
  });
  EXPECT_EQ(WEXITSTATUS(outcome.status), 7) << "the parent has reported nothing";
}

TEST(Report, ErrnoIsKept) {
  const Outcome outcome = run("", {}, [] {
    snprintf(g_options.log_path, sizeof g_options.log_path, "/nonexistent/x");
    errno = 1234;
    raise_fault(bad_free(0x1000));
    if (errno != 1234) ::_exit(1);
  });
  EXPECT_EQ(WEXITSTATUS(outcome.status), 99);
}

TEST(Report, SignalsWaitUntilTheReportIsWritten) {
  static volatile sig_atomic_t delivered = 0;
  Sources sources;
  sources.describe_block = [](AppAddr, heap::BlockInfo&) {
    kill(getpid(), SIGUSR1);
    if (delivered != 0) ::_exit(1);
    return false;
  };
  const Outcome outcome = run("", sources, [] {
    signal(SIGUSR1, [](int) { delivered = 1; });
    raise_fault(bad_free(0x1000));
    if (delivered != 1) ::_exit(2);
  });
  EXPECT_EQ(WEXITSTATUS(outcome.status), 99);
}

// Allows what process ruling 18 lists and what ends a process; anything else kills.
void confine() {
  const unsigned allowed[] = {SYS_mmap, SYS_munmap, SYS_mprotect, SYS_madvise, SYS_futex, SYS_write, SYS_exit_group};
  std::vector<sock_filter> filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const unsigned number : allowed) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) ::_exit(33);
  os::seal();
}

TEST(Report, AConfinedProcessReportsWithTheCallsItMayMake) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    init_reports(g_options, {}, nullptr);
    confine();
    raise_fault(bad_free(0x1000));
    ::_exit(final_status(7));
  }
  close(ends[1]);
  char text[4096] = {};
  EXPECT_GT(read(ends[0], text, sizeof text - 1), 0);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 99);
  EXPECT_NE(std::string(text).find("BUG: KASAN: invalid-free in"), std::string::npos) << text;
}

TEST(Report, AReaderThatHasGoneAwayDoesNotKillTheProgram) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
    init_reports(g_options, {}, nullptr);
    raise_fault(bad_free(0x1000));
    sigset_t pending;
    sigpending(&pending);
    ::_exit(sigismember(&pending, SIGPIPE) ? 1 : final_status(7));
  }
  close(ends[1]);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 99);
}

TEST(Report, AProgramThatStartedWithoutStderrGetsNothingInItsOwnFiles) {
  const std::string path = testing::TempDir() + "penumbra_report_test.own";
  const pid_t child = fork();
  if (child == 0) {
    close(2);
    init_reports(g_options, {}, nullptr);
    const int own = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (own != 2) ::_exit(1);
    raise_fault(bad_free(0x1000));
    ::_exit(final_status(7));
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 99);
  EXPECT_EQ(read_file(path), "");
  unlink(path.c_str());
}

TEST(LogPath, TheProcessIdAndPercentSignsAreFilledIn) {
  FixedTextBuffer<64> path;
  append_log_path(path, "a.%p.%%p.%x%", 4711);
  EXPECT_STREQ(path.c_str(), "a.4711.%p.%x%");
}

TEST(ReportLock, TheHolderIsToldApartFromOthers) {
  ReportLock lock;
  const Task me{1, 100};
  EXPECT_EQ(lock.acquire(me, 0), Acquired::kYes);
  EXPECT_TRUE(lock.is_held_by(me));
  EXPECT_FALSE(lock.is_held_by(Task{1, 101}));
  EXPECT_EQ(lock.acquire(me, 0), Acquired::kNested);
  lock.release();
  EXPECT_FALSE(lock.is_held_by(me));
}

TEST(ReportLock, WaitingIsBounded) {
  ReportLock lock;
  const Task holder{getpid(), getpid()};  // this thread, which exists
  ASSERT_EQ(lock.acquire(holder, 0), Acquired::kYes);
  EXPECT_EQ(lock.acquire(Task{getpid(), getpid() + 1}, 30'000'000), Acquired::kTimedOut);
}

TEST(ReportLock, AHolderThatIsGoneKeepsNobodyWaiting) {
  ReportLock lock;
  int gone = 0;
  std::thread holder([&] {
    gone = gettid();
    lock.acquire(Task{getpid(), gone}, 0);
  });
  holder.join();
  EXPECT_EQ(lock.acquire(Task{getpid(), getpid()}, 60'000'000'000), Acquired::kYes);
}

TEST(ReportLock, AForkChildTakesOverWhatItsParentHeld) {
  ReportLock lock;
  ASSERT_EQ(lock.acquire(Task{getppid(), getppid()}, 0), Acquired::kYes);
  EXPECT_EQ(lock.acquire(Task{getpid(), getpid()}, 30'000'000), Acquired::kYes);
}

TEST(SeenPlaces, APlaceIsNewOnceAndAFullTableRefuses) {
  auto seen = std::make_unique<SeenPlaces>();
  EXPECT_FALSE(seen->note_if_seen(1, 1));
  EXPECT_EQ(seen->note(1, 1), SeenPlaces::Verdict::kNew);
  EXPECT_EQ(seen->note(1, 1), SeenPlaces::Verdict::kRepeat);
  EXPECT_EQ(seen->note(1, 2), SeenPlaces::Verdict::kNew);
  EXPECT_TRUE(seen->note_if_seen(1, 2));
  EXPECT_EQ(seen->repeats(), 2u);
  for (std::uintptr_t pc = 2; pc < SeenPlaces::kCapacity; ++pc) seen->note(pc, 0);
  EXPECT_EQ(seen->note(~std::uintptr_t{0}, 0), SeenPlaces::Verdict::kFull);
  EXPECT_TRUE(seen->note_if_seen(1, 1)) << "what was seen stays seen";
  EXPECT_NE(seen->refused(), 0u);
}

alignas(16) std::uint8_t g_other_stack[16 << 10];
void* const kOtherTop = g_other_stack + sizeof g_other_stack;

TEST(OwnStack, AFunctionRunsThereAndReturns) {
  bool there = false;
  EXPECT_EQ(penumbra_call_on_stack(
                [](void* result) {
                  const auto here = reinterpret_cast<std::uint8_t*>(__builtin_frame_address(0));
                  *static_cast<bool*>(result) = here >= g_other_stack && here < kOtherTop;
                },
                &there, kOtherTop),
            1);
  EXPECT_TRUE(there);
}

TEST(OwnStack, AnAbandonedFunctionLeavesTheCallerAsItWas) {
  const std::string kept = "the caller's registers and stack";
  EXPECT_EQ(penumbra_call_on_stack([](void*) { penumbra_abandon_stack(kOtherTop); }, nullptr, kOtherTop), 0);
  EXPECT_EQ(kept, "the caller's registers and stack");
}

}  // namespace
}  // namespace penumbra::report
