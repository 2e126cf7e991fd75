#include "runtime/base/os_process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/raw_memory.h"

namespace penumbra::os {
namespace {

// The kernel's struct sigaction (arch/x86/include/uapi/asm/signal.h), which is not libc's.
struct KernelSigaction {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)();
  SignalSet mask;
};

long as_long(const void* p) {
  return reinterpret_cast<long>(p);
}

Result outside_call(long number, long a = 0, long b = 0, long c = 0, long d = 0) {
  if (is_sealed()) return Result(-EPERM);
  return Result(raw_syscall(number, a, b, c, d));
}

bool wait_for(int fd, short event, int milliseconds) {
  const std::uint64_t end = monotonic_ns() + static_cast<std::uint64_t>(milliseconds) * 1'000'000;
  for (;;) {
    pollfd wanted{fd, event, 0};
    const Result ready = outside_call(SYS_poll, as_long(&wanted), 1, milliseconds);
    if (ready.ok()) return ready.value() > 0;
    const std::uint64_t now = monotonic_ns();
    if (ready.error() != EINTR || now >= end) return false;
    milliseconds = static_cast<int>((end - now) / 1'000'000);
  }
}

}  // namespace

// These three answer for the program's own calls: its filter decides, not the seal.
Result limits(unsigned resource, const void* set, void* get) {
  return Result(raw_syscall(SYS_prlimit64, 0, static_cast<long>(resource), as_long(set), as_long(get)));
}

Result lock_memory(AppAddr at, std::size_t bytes, bool on_fault) {
  constexpr long kOnFault = 1;  // MLOCK_ONFAULT
  return Result(
      raw_syscall(SYS_mlock2, static_cast<long>(at.value), static_cast<long>(bytes), on_fault ? kOnFault : 0));
}

bool has_capability(unsigned capability) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
  if (!Result(raw_syscall(SYS_capget, as_long(&header), as_long(data))).ok()) return false;
  return (data[capability / 32].effective >> (capability % 32) & 1) != 0;
}

unsigned getuid() {
  return static_cast<unsigned>(raw_syscall(SYS_getuid));
}

int tracer_pid() {
  const Result opened = open_read("/proc/self/status");
  if (!opened.ok()) return 0;
  const int fd = static_cast<int>(opened.value());
  // The line is among the first ten, behind a name of at most 64 bytes.
  char text[1024];
  const Result got = read(fd, text, sizeof text);
  close(fd).ignore();
  constexpr char kLine[] = "\nTracerPid:\t";
  constexpr long kLineLength = sizeof kLine - 1;
  for (long at = 0; at + kLineLength < got.value(); ++at) {
    if (raw_compare(text + at, kLine, kLineLength) != 0) continue;
    int pid = 0;
    for (long digit = at + kLineLength; digit < got.value() && text[digit] >= '0' && text[digit] <= '9'; ++digit) {
      pid = pid * 10 + (text[digit] - '0');
    }
    return pid;
  }
  return 0;
}

void thread_name(char (&name)[16]) {
  name[0] = '\0';
  outside_call(SYS_prctl, PR_GET_NAME, as_long(name)).ignore();
  name[15] = '\0';
}

Result open_append(const char* path) {
  return outside_call(SYS_openat, AT_FDCWD, as_long(path), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY,
                      0666);
}

int move_high(int fd, int lowest) {
  if (fd >= lowest) return fd;
  const Result moved = outside_call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, lowest);
  if (!moved.ok()) return fd;
  close(fd).ignore();
  return static_cast<int>(moved.value());
}

Result pipe(int (&ends)[2]) {
  return outside_call(SYS_pipe2, as_long(ends), O_CLOEXEC);
}

bool is_open(int fd) {
  return outside_call(SYS_fcntl, fd, F_GETFD).ok();
}

Result write_some(int fd, const char* bytes, std::size_t count) {
  return Result(raw_syscall(SYS_write, fd, as_long(bytes), static_cast<long>(count)));
}

bool wait_readable(int fd, int milliseconds) {
  return wait_for(fd, POLLIN, milliseconds);
}

bool wait_writable(int fd, int milliseconds) {
  return wait_for(fd, POLLOUT, milliseconds);
}

void executable_path(char* into, std::size_t bytes) {
  const Result length =
      outside_call(SYS_readlinkat, AT_FDCWD, as_long("/proc/self/exe"), as_long(into), static_cast<long>(bytes - 1));
  into[length.ok() ? length.value() : 0] = '\0';
}

bool is_executable(const char* path) {
  return outside_call(SYS_faccessat, AT_FDCWD, as_long(path), X_OK).ok();
}

SignalSet block_signals(SignalSet set) {
  SignalSet old = 0;
  raw_syscall(SYS_rt_sigprocmask, SIG_BLOCK, as_long(&set), as_long(&old), sizeof set);
  return old;
}

void restore_signals(SignalSet old) {
  raw_syscall(SYS_rt_sigprocmask, SIG_SETMASK, as_long(&old), 0, sizeof old);
}

SignalSet pending_signals() {
  SignalSet pending = 0;
  raw_syscall(SYS_rt_sigpending, as_long(&pending), sizeof pending);
  return pending;
}

void discard_pending(SignalSet set) {
  const timespec at_once{};
  raw_syscall(SYS_rt_sigtimedwait, as_long(&set), 0, as_long(&at_once), sizeof set);
}

Result futex_wait_for(std::atomic<std::uint32_t>* word, std::uint32_t expected, std::uint64_t ns) {
  const timespec limit{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  return Result(
      raw_syscall(SYS_futex, as_long(word), FUTEX_WAIT_PRIVATE, static_cast<long>(expected), as_long(&limit)));
}

void yield() {
  if (!outside_call(SYS_sched_yield).ok()) __builtin_ia32_pause();
}

bool thread_exists(int pid, int tid) {
  return Result(raw_syscall(SYS_tgkill, pid, tid, 0)).error() != ESRCH;
}

void default_signal(int signal) {
  const KernelSigaction by_default{};
  raw_syscall(SYS_rt_sigaction, signal, as_long(&by_default), 0, sizeof(SignalSet));
}

void abort_now() {
  block_signals(~SignalSet{0});
  default_signal(SIGABRT);
  raw_syscall(SYS_tgkill, getpid(), gettid(), SIGABRT);
  restore_signals(~signal_bit(SIGABRT));
  exit_process(127);  // reached only where the kernel refuses to send, as in some sandboxes
}

}  // namespace penumbra::os
