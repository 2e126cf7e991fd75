// The one door to the kernel: system calls made inline, results as values, errno never touched.
//
// Everything in the checked process that needs the kernel comes through here, so that libc's wrappers (which we
// interpose ourselves) are never on the way, so that sealing (process ruling 18) has one place, and so that a
// test can make any one call fail.
//
// Ranges of memory calls are page aligned; a violation is a failed check, not an EINVAL.
//
// zone: signal-safe
#pragma once

#include <signal.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"

namespace penumbra::os {

// What a system call returned: >= 0 a value, < 0 a negated errno.
class [[nodiscard]] Result {
 public:
  constexpr explicit Result(long raw) : raw_(raw) {}
  constexpr bool ok() const { return raw_ >= 0 || raw_ < -4095; }
  constexpr int error() const { return ok() ? 0 : static_cast<int>(-raw_); }
  constexpr long value() const { return raw_; }
  AppAddr address() const { return AppAddr(static_cast<std::uintptr_t>(raw_)); }
  constexpr void ignore() const {}  // for the few places where failing is as good as succeeding

 private:
  long raw_;
};

inline long raw_syscall(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

// What the functions below map is on the list of own_ranges.h until it is unmapped.

// Calls that take address space or change it, by name, for the failure injector and the call counters.
enum class MemoryCall : std::uint8_t { kMap, kUnmap, kProtect, kAdvise, kProcessAdvise, kRemap, kMemfd, kTruncate };
inline constexpr std::size_t kMemoryCalls = 8;

// Returns the errno (> 0) that the call shall fail with, or 0 to let it through.
using FailureInjector = int (*)(MemoryCall call);
void set_failure_injector_test_only(FailureInjector injector);
// Memory calls made so far, of one kind. Relaxed; for statistics and tests.
std::uint64_t memory_calls_made(MemoryCall call);

// Reserved, inaccessible, never counted against overcommit. `hint` null: anywhere.
Result reserve(AppAddr hint, std::size_t bytes);
// As reserve, but at exactly `at`, failing with EEXIST where something is mapped.
Result reserve_at(AppAddr at, std::size_t bytes);
// Readable, writable, private, no-reserve memory at exactly `at`; fails with EEXIST where something is mapped.
Result map_fixed_noreplace(AppAddr at, std::size_t bytes);
// Readable, writable, private memory anywhere.
Result map_anonymous(std::size_t bytes);
// The same without counting against overcommit: for sparse tables of which few pages are ever touched.
Result map_noreserve(std::size_t bytes);
// Replaces whatever is at `at` by fresh PROT_NONE, no-reserve address space.
Result decommit(AppAddr at, std::size_t bytes);
// Replaces whatever is at `at` by fresh zeroed read-write no-reserve memory.
Result remap_fresh(AppAddr at, std::size_t bytes);
Result map_file_at(AppAddr at, std::size_t bytes, int prot, int fd, std::uint64_t offset);
// Private, over what is at `at`.
Result map_private_file_at(AppAddr at, std::size_t bytes, int prot, int fd, std::uint64_t offset);
// Private and read-only, anywhere, from the file's begin.
Result map_file_read_only(std::size_t bytes, int fd);
Result unmap(AppAddr at, std::size_t bytes);
Result protect(AppAddr at, std::size_t bytes, int prot);
Result advise(AppAddr at, std::size_t bytes, int advice);
// process_madvise on ourselves over `count` (<= 1024) ranges; returns bytes advised, which may be short.
Result process_advise(int pidfd, const iovec* ranges, std::size_t count, int advice);
// One byte for each page of a mapped range, whose lowest bit says that the page is in memory. What was swapped out is not.
Result in_core(AppAddr at, std::size_t bytes, unsigned char* pages);
// Gives the private pages of [from, from+bytes) to [to, to+bytes), whose own are dropped; the first range stays mapped and
// reads zeros. Copies nothing: 0.03 us a page. After a failure `to` is mapped and its content is lost, `from` is as it was.
Result move_pages(AppAddr from, AppAddr to, std::size_t bytes);
Result memfd(const char* name, unsigned flags);
// Refuses with EFBIG what RLIMIT_FSIZE forbids, where the kernel would send SIGXFSZ as well.
Result truncate(int fd, std::uint64_t bytes);
// Maps the memory of a shared mapping at `to` as well, replacing what is there. No descriptor is needed. A failure may
// leave nothing mapped at `to`.
Result alias(AppAddr from, AppAddr to, std::size_t bytes);

// MADV_* that Debian 12's headers do not know (include/uapi/asm-generic/mman-common.h, Linux 6.13).
inline constexpr int kMadvGuardInstall = 102;
inline constexpr int kMadvGuardRemove = 103;
// Stands for a pidfd of the caller's own process (include/uapi/linux/pidfd.h, Linux 6.14): needs no descriptor.
inline constexpr int kPidfdSelf = -10001;

Result open_read(const char* path);
Result read(int fd, void* into, std::size_t bytes);
// A path that is not absolute starts at `dirfd` (AT_FDCWD: the working directory). Never waits, not for a FIFO either.
Result open_read_at(int dirfd, const char* path);
Result read_at(int fd, void* into, std::size_t bytes, std::uint64_t offset);
Result remove_file(const char* path);
Result read_link(const char* path, char* into, std::size_t bytes);
bool may_execute(const char* path);  // as access(2) with X_OK
// Size of the file that `fd` is open on, in bytes.
Result file_bytes(int fd);
// Does what `fd` is open on belong to this process's user, and can nobody else write it?
bool is_ours_alone(int fd);
// The same, and size and time of last change (ns since 1970), by one call.
struct FileFacts {
  std::size_t bytes = 0;
  std::uint64_t changed_at = 0;
  bool is_ours_alone = false;
};
Result file_facts(int fd, FileFacts& facts);
// st_mode of what `fd` is open on.
Result file_mode(int fd);
// Replaces this process by the program in `path`; comes back only to say why not. Never sealed: the kernel's own
// filter decides. `dirfd` and `flags` as in execveat(2).
Result execute(int dirfd, const char* path, char* const* argv, char* const* envp, int flags);
Result close(int fd);
// Writes all of it, retrying short writes and EINTR; false when that is not possible.
bool write_all(int fd, const char* bytes, std::size_t count);
// Safe look at memory that may not be there: false where [from, from+bytes) cannot be read.
bool try_read_memory(AppAddr from, void* into, std::size_t bytes);
// Whether the 4 bytes at `at`, a multiple of 4, can be read now. About 100 ns; allowed when sealed, since a futex
// call answers it.
bool is_readable(AppAddr at);

// Once sealed, what they last said in this thread, and in this process; 0 if nobody asked before.
int gettid();
int getpid();
// Whether a thread of this process has this id. When sealed, as if it had.
bool is_thread_alive(int tid);
// Of this thread: where its control block begins, by which it finds its thread-local variables.
inline AppAddr thread_pointer() {
  std::uintptr_t pointer;
  asm("movq %%fs:0, %0" : "=r"(pointer));  // the ABI keeps the pointer to itself there
  return AppAddr(pointer);
}
// The kernel's number of the CPU this thread runs on now, below possible_cpus(). About 18 ns; no system call.
unsigned current_cpu();
// CPUs that may ever run a thread (cpu_possible), at least 1. Asked once: the answer holds after chroot and seal() too.
unsigned possible_cpus();
// Clocks stand at 0 once sealed.
std::uint64_t monotonic_ns();
std::uint64_t thread_cpu_ns();

// The calling thread's alternate signal stack, as sigaltstack(2) tells it.
Result alternate_stack(stack_t* into);
// Soft RLIMIT_STACK in bytes; ~0 where there is no limit.
std::size_t stack_limit();
// Ends the process, without exit handlers.
[[noreturn]] void exit_process(int status);

Result futex_wait(std::atomic<std::uint32_t>* word, std::uint32_t expected);
Result futex_wake(std::atomic<std::uint32_t>* word, unsigned waiters);

// Process ruling 18: once the program has installed a seccomp filter, only mmap, munmap, mprotect, madvise,
// futex and write remain; everything else above answers EPERM without a system call.
void seal();
// Strict mode leaves read, write and exit alone: every memory call answers EPERM as well, since the kernel would kill.
void seal_strictly();
bool is_sealed();

}  // namespace penumbra::os
