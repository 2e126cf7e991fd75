#include "runtime/base/os_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/config.h"
#include "runtime/base/own_ranges.h"

namespace penumbra::os {
namespace {

constinit std::atomic<FailureInjector> g_injector{nullptr};
constinit std::atomic<std::uint64_t> g_calls[kMemoryCalls]{};
enum class Seal : std::uint8_t { kOpen, kFiltered, kStrict };
constinit std::atomic<Seal> g_seal{Seal::kOpen};
// What gettid and getpid last said, for when they may not be asked any more.
constinit thread_local int t_last_tid = 0;
constinit std::atomic<int> g_last_pid{0};

Result memory_call(MemoryCall call, long number, long a, long b, long c = 0, long d = 0, long e = 0, long f = 0) {
  g_calls[static_cast<std::size_t>(call)].fetch_add(1, std::memory_order_relaxed);
  if (const FailureInjector injector = g_injector.load(std::memory_order_relaxed)) {
    if (const int error = injector(call)) return Result(-error);
  }
  if (g_seal.load(std::memory_order_relaxed) == Seal::kStrict) [[unlikely]]
    return Result(-EPERM);
  return Result(raw_syscall(number, a, b, c, d, e, f));
}

Result outside_call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  if (is_sealed()) return Result(-EPERM);
  return Result(raw_syscall(number, a, b, c, d, e, f));
}

void check_range(AppAddr at, std::size_t bytes) {
  PENUMBRA_CHECK((at.value & (kPageSize - 1)) == 0);
  PENUMBRA_CHECK(bytes != 0 && (bytes & (kPageSize - 1)) == 0);
}

long as_long(AppAddr a) {
  return static_cast<long>(a.value);
}

Result map(AppAddr at, std::size_t bytes, int prot, int flags) {
  check_range(at, bytes);
  return memory_call(MemoryCall::kMap, SYS_mmap, as_long(at), static_cast<long>(bytes), prot,
                     MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

// A mapping that did not exist before is ours from now on; one that replaces a part of ours was already.
Result own(Result mapped, std::size_t bytes, own_ranges::Use use = own_ranges::Use::kData) {
  if (mapped.ok()) own_ranges::add({mapped.address(), mapped.address() + bytes}, use);
  return mapped;
}

}  // namespace

void set_failure_injector_test_only(FailureInjector injector) {
  g_injector.store(injector);
}

std::uint64_t memory_calls_made(MemoryCall call) {
  return g_calls[static_cast<std::size_t>(call)].load(std::memory_order_relaxed);
}

Result reserve(AppAddr hint, std::size_t bytes) {
  // Reserved to be opened by pieces: it counts as a whole from the start.
  return own(map(hint, bytes, PROT_NONE, MAP_NORESERVE), bytes);
}

Result reserve_at(AppAddr at, std::size_t bytes) {
  return own(map(at, bytes, PROT_NONE, MAP_NORESERVE | MAP_FIXED_NOREPLACE), bytes, own_ranges::Use::kKeptFree);
}

Result map_fixed_noreplace(AppAddr at, std::size_t bytes) {
  return own(map(at, bytes, PROT_READ | PROT_WRITE, MAP_NORESERVE | MAP_FIXED_NOREPLACE), bytes);
}

Result map_anonymous(std::size_t bytes) {
  return own(map(AppAddr(), bytes, PROT_READ | PROT_WRITE, 0), bytes);
}

Result map_noreserve(std::size_t bytes) {
  return own(map(AppAddr(), bytes, PROT_READ | PROT_WRITE, MAP_NORESERVE), bytes);
}

Result decommit(AppAddr at, std::size_t bytes) {
  return map(at, bytes, PROT_NONE, MAP_NORESERVE | MAP_FIXED);
}

Result remap_fresh(AppAddr at, std::size_t bytes) {
  return map(at, bytes, PROT_READ | PROT_WRITE, MAP_NORESERVE | MAP_FIXED);
}

Result move_pages(AppAddr from, AppAddr to, std::size_t bytes) {
  check_range(from, bytes);
  check_range(to, bytes);
  if (is_sealed()) return Result(-EPERM);
  const Result moved =
      memory_call(MemoryCall::kRemap, SYS_mremap, as_long(from), static_cast<long>(bytes), static_cast<long>(bytes),
                  MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, as_long(to));
  // The kernel may have unmapped the target before it failed. Nobody else has come there, or it is still mapped.
  if (!moved.ok()) map(to, bytes, PROT_READ | PROT_WRITE, MAP_NORESERVE | MAP_FIXED_NOREPLACE).ignore();
  return moved;
}

Result map_file_at(AppAddr at, std::size_t bytes, int prot, int fd, std::uint64_t offset) {
  check_range(at, bytes);
  return memory_call(MemoryCall::kMap, SYS_mmap, as_long(at), static_cast<long>(bytes), prot, MAP_SHARED | MAP_FIXED,
                     fd, static_cast<long>(offset));
}

Result map_private_file_at(AppAddr at, std::size_t bytes, int prot, int fd, std::uint64_t offset) {
  check_range(at, bytes);
  return memory_call(MemoryCall::kMap, SYS_mmap, as_long(at), static_cast<long>(bytes), prot, MAP_PRIVATE | MAP_FIXED,
                     fd, static_cast<long>(offset));
}

Result map_file_read_only(std::size_t bytes, int fd) {
  check_range(AppAddr(), bytes);
  return memory_call(MemoryCall::kMap, SYS_mmap, 0, static_cast<long>(bytes), PROT_READ, MAP_PRIVATE, fd, 0);
}

Result unmap(AppAddr at, std::size_t bytes) {
  check_range(at, bytes);
  // Off the list first: from the moment it is unmapped another thread's mapping may lie here.
  own_ranges::remove({at, at + bytes});
  const Result unmapped = memory_call(MemoryCall::kUnmap, SYS_munmap, as_long(at), static_cast<long>(bytes));
  if (!unmapped.ok()) own_ranges::add({at, at + bytes}, own_ranges::Use::kData);
  return unmapped;
}

Result protect(AppAddr at, std::size_t bytes, int prot) {
  check_range(at, bytes);
  if ((prot & PROT_WRITE) != 0) own_ranges::became_data(at);
  return memory_call(MemoryCall::kProtect, SYS_mprotect, as_long(at), static_cast<long>(bytes), prot);
}

Result advise(AppAddr at, std::size_t bytes, int advice) {
  check_range(at, bytes);
  return memory_call(MemoryCall::kAdvise, SYS_madvise, as_long(at), static_cast<long>(bytes), advice);
}

Result process_advise(int pidfd, const iovec* ranges, std::size_t count, int advice) {
  PENUMBRA_CHECK(count <= 1024);
  if (is_sealed()) return Result(-EPERM);
  return memory_call(MemoryCall::kProcessAdvise, SYS_process_madvise, pidfd, reinterpret_cast<long>(ranges),
                     static_cast<long>(count), advice, 0);
}

Result in_core(AppAddr at, std::size_t bytes, unsigned char* pages) {
  check_range(at, bytes);
  if (is_sealed()) return Result(-EPERM);
  return Result(raw_syscall(SYS_mincore, as_long(at), static_cast<long>(bytes), reinterpret_cast<long>(pages)));
}

Result memfd(const char* name, unsigned flags) {
  if (is_sealed()) return Result(-EPERM);
  return memory_call(MemoryCall::kMemfd, SYS_memfd_create, reinterpret_cast<long>(name), flags);
}

Result truncate(int fd, std::uint64_t bytes) {
  if (is_sealed()) return Result(-EPERM);
  rlimit64 limit{};
  const Result asked(raw_syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, reinterpret_cast<long>(&limit)));
  if (asked.ok() && bytes > limit.rlim_cur) return Result(-EFBIG);
  return memory_call(MemoryCall::kTruncate, SYS_ftruncate, fd, static_cast<long>(bytes));
}

Result alias(AppAddr from, AppAddr to, std::size_t bytes) {
  check_range(from, bytes);
  check_range(to, bytes);
  if (is_sealed()) return Result(-EPERM);
  // An old size of 0 duplicates a shared mapping instead of moving it (mm/mremap.c).
  return memory_call(MemoryCall::kRemap, SYS_mremap, as_long(from), 0, static_cast<long>(bytes),
                     MREMAP_MAYMOVE | MREMAP_FIXED, as_long(to));
}

Result open_read(const char* path) {
  return outside_call(SYS_openat, AT_FDCWD, reinterpret_cast<long>(path), O_RDONLY | O_CLOEXEC);
}

Result remove_file(const char* path) {
  return outside_call(SYS_unlink, reinterpret_cast<long>(path));
}

Result read(int fd, void* into, std::size_t bytes) {
  return outside_call(SYS_read, fd, reinterpret_cast<long>(into), static_cast<long>(bytes));
}

Result open_read_at(int dirfd, const char* path) {
  return outside_call(SYS_openat, dirfd, reinterpret_cast<long>(path), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

Result read_at(int fd, void* into, std::size_t bytes, std::uint64_t offset) {
  return outside_call(SYS_pread64, fd, reinterpret_cast<long>(into), static_cast<long>(bytes),
                      static_cast<long>(offset));
}

Result read_link(const char* path, char* into, std::size_t bytes) {
  return outside_call(SYS_readlink, reinterpret_cast<long>(path), reinterpret_cast<long>(into),
                      static_cast<long>(bytes));
}

bool may_execute(const char* path) {
  return outside_call(SYS_faccessat, AT_FDCWD, reinterpret_cast<long>(path), X_OK).ok();
}

Result file_bytes(int fd) {
  return outside_call(SYS_lseek, fd, 0, SEEK_END);
}

Result file_facts(int fd, FileFacts& facts) {
  struct stat status;
  const Result got = outside_call(SYS_fstat, fd, reinterpret_cast<long>(&status));
  if (!got.ok()) return got;
  const Result user = outside_call(SYS_geteuid);
  facts.bytes = static_cast<std::size_t>(status.st_size);
  facts.changed_at = static_cast<std::uint64_t>(status.st_mtim.tv_sec) * 1'000'000'000 +
                     static_cast<std::uint64_t>(status.st_mtim.tv_nsec);
  facts.is_ours_alone =
      user.ok() && status.st_uid == static_cast<uid_t>(user.value()) && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  return user;
}

bool is_ours_alone(int fd) {
  FileFacts facts;
  return file_facts(fd, facts).ok() && facts.is_ours_alone;
}

Result file_mode(int fd) {
  struct stat status;
  const Result got = outside_call(SYS_fstat, fd, reinterpret_cast<long>(&status));
  return got.ok() ? Result(static_cast<long>(status.st_mode)) : got;
}

Result execute(int dirfd, const char* path, char* const* argv, char* const* envp, int flags) {
  const auto argv_word = reinterpret_cast<long>(argv);
  const auto envp_word = reinterpret_cast<long>(envp);
  if (dirfd == AT_FDCWD && flags == 0) {
    return Result(raw_syscall(SYS_execve, reinterpret_cast<long>(path), argv_word, envp_word));
  }
  return Result(raw_syscall(SYS_execveat, dirfd, reinterpret_cast<long>(path), argv_word, envp_word, flags));
}

Result close(int fd) {
  return outside_call(SYS_close, fd);
}

bool write_all(int fd, const char* bytes, std::size_t count) {
  while (count > 0) {
    const Result written(raw_syscall(SYS_write, fd, reinterpret_cast<long>(bytes), static_cast<long>(count)));
    if (written.error() == EINTR) continue;
    if (!written.ok() || written.value() == 0) return false;
    bytes += written.value();
    count -= static_cast<std::size_t>(written.value());
  }
  return true;
}

bool try_read_memory(AppAddr from, void* into, std::size_t bytes) {
  const iovec local{into, bytes};
  const iovec remote{from.ptr<void>(), bytes};
  const Result got = outside_call(SYS_process_vm_readv, getpid(), reinterpret_cast<long>(&local), 1,
                                  reinterpret_cast<long>(&remote), 1, 0);
  return got.ok() && static_cast<std::size_t>(got.value()) == bytes;
}

bool is_readable(AppAddr at) {
  // FUTEX_WAIT reads the word first: EFAULT, or EAGAIN because it is not the expected value. A word that happens to
  // be equal does not make us sleep either: the time is up at once.
  const timespec no_time{};
  const Result result(
      raw_syscall(SYS_futex, as_long(at), FUTEX_WAIT_PRIVATE, 0x5eedf00d, reinterpret_cast<long>(&no_time)));
  return result.error() != EFAULT && result.error() != EINVAL;
}

int gettid() {
  if (!is_sealed()) t_last_tid = static_cast<int>(raw_syscall(SYS_gettid));
  return t_last_tid;
}

int getpid() {
  if (!is_sealed()) g_last_pid.store(static_cast<int>(raw_syscall(SYS_getpid)), std::memory_order_relaxed);
  return g_last_pid.load(std::memory_order_relaxed);
}

bool is_thread_alive(int tid) {
  return outside_call(SYS_tgkill, getpid(), tid, 0).error() != ESRCH;
}

unsigned current_cpu() {
  // The vdso answers from a segment limit, node << 12 | cpu, without entering the kernel (arch/x86/include/asm/segment.h,
  // vdso_read_cpunode). Not rdtscp: under some hypervisors it tells the host's number.
  constexpr unsigned kCpuNodeSelector = 15 * 8 + 3;
  unsigned limit = 0;  // stays where the selector is not valid
  asm volatile("lsl %1, %0" : "+r"(limit) : "r"(kCpuNodeSelector) : "cc");
  return limit & 0xfff;
}

namespace {

unsigned ask_possible_cpus() {
  // The kernel writes "0-N" or a list; the highest number plus one is what arrays must hold.
  const Result fd = open_read("/sys/devices/system/cpu/possible");
  if (!fd.ok()) return 1;
  char text[256];
  const Result got = read(static_cast<int>(fd.value()), text, sizeof text);
  close(static_cast<int>(fd.value())).ignore();
  unsigned last = 0;
  for (long i = 0; i < got.value(); ++i) {
    if (text[i] >= '0' && text[i] <= '9') {
      last = last * 10 + static_cast<unsigned>(text[i] - '0');
    } else if (text[i] != '\n') {
      last = 0;
    }
  }
  return last + 1;
}

}  // namespace

unsigned possible_cpus() {
  static constinit std::atomic<unsigned> answer{0};
  unsigned cpus = answer.load(std::memory_order_relaxed);
  if (cpus == 0) {
    cpus = ask_possible_cpus();
    answer.store(cpus, std::memory_order_relaxed);
  }
  return cpus;
}

std::uint64_t monotonic_ns() {
  timespec now{};
  if (is_sealed()) return 0;
  raw_syscall(SYS_clock_gettime, CLOCK_MONOTONIC, reinterpret_cast<long>(&now));
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint64_t thread_cpu_ns() {
  timespec now{};
  if (is_sealed()) return 0;
  raw_syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, reinterpret_cast<long>(&now));
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

Result alternate_stack(stack_t* into) {
  return outside_call(SYS_sigaltstack, 0, reinterpret_cast<long>(into));
}

std::size_t stack_limit() {
  rlimit64 limit{};
  const Result got = outside_call(SYS_prlimit64, 0, RLIMIT_STACK, 0, reinterpret_cast<long>(&limit));
  return got.ok() && limit.rlim_cur != RLIM64_INFINITY ? limit.rlim_cur : ~std::size_t{0};
}

void exit_process(int status) {
  for (;;) raw_syscall(SYS_exit_group, status);
}

Result futex_wait(std::atomic<std::uint32_t>* word, std::uint32_t expected) {
  return Result(
      raw_syscall(SYS_futex, reinterpret_cast<long>(word), FUTEX_WAIT_PRIVATE, static_cast<long>(expected), 0));
}

Result futex_wake(std::atomic<std::uint32_t>* word, unsigned waiters) {
  return Result(raw_syscall(SYS_futex, reinterpret_cast<long>(word), FUTEX_WAKE_PRIVATE, static_cast<long>(waiters)));
}

void seal() {
  g_seal.store(Seal::kFiltered, std::memory_order_relaxed);
}

void seal_strictly() {
  g_seal.store(Seal::kStrict, std::memory_order_relaxed);
}

bool is_sealed() {
  return g_seal.load(std::memory_order_relaxed) != Seal::kOpen;
}

}  // namespace penumbra::os
