// prctl and syscall: after the program has confined itself by seccomp, the runtime seals itself (process ruling 18).
//
// A filter kills or refuses what the program does not need any more, and the runtime's own needs are not among it. The
// confining call itself is the program's and passes as it is. `syscall` is also another way to the calls that
// mapping_entries.cc, resource_limits.cc and locking.cc guard, so those numbers are handed to their entry points.
//
// zone: signal-safe
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include "instrument/libc/alone.h"
#include "instrument/libc/entry.h"
#include "instrument/libc/guarded_calls.h"
#include "runtime/base/os_linux.h"

namespace penumbra::libc {
namespace {

// Before the program confines itself: what the runtime will not be able to ask any more.
void prepare() {
  // A filter may not know what our thread needs, strict mode not even what waiting for it needs: none from now on.
  if (state.hold_threads != nullptr) state.hold_threads();
  os::getpid();
  os::gettid();
}

void not_confined() {
  if (state.resume_threads != nullptr) state.resume_threads();
}

void confined(bool is_strict) {
  if (is_strict) {
    os::seal_strictly();
  } else {
    os::seal();
  }
}

}  // namespace

PENUMBRA_LIBC_DECLARE(int, prctl, (int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d))
PENUMBRA_LIBC_DECLARE(long, syscall, (long number, long a, long b, long c, long d, long e, long f))

int entry_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
  if (option == PR_SET_SECCOMP) prepare();
  const int result = real_prctl(option, a, b, c, d);
  if (option == PR_SET_SECCOMP) {
    if (result == 0) {
      confined(a == SECCOMP_MODE_STRICT);
    } else {
      not_confined();
    }
  }
  return result;
}

// The last line is a jump, so that a call which returns twice (clone, vfork) finds the stack as libc would leave it.
long entry_syscall(long number, long a, long b, long c, long d, long e, long f) {
  if (state.is_host) [[likely]] {
    void* const at = reinterpret_cast<void*>(a);
    const auto bytes = static_cast<std::size_t>(b);
    switch (number) {
      case SYS_mmap:
        return reinterpret_cast<long>(
            guarded::mmap(at, bytes, static_cast<int>(c), static_cast<int>(d), static_cast<int>(e), f));
      case SYS_munmap: return guarded::munmap(at, bytes);
      case SYS_mprotect: return guarded::mprotect(at, bytes, static_cast<int>(c));
      case SYS_mremap:
        return reinterpret_cast<long>(
            guarded::mremap(at, bytes, static_cast<std::size_t>(c), static_cast<int>(d), reinterpret_cast<void*>(e)));
      case SYS_getrlimit:
        return guarded::prlimit(0, static_cast<unsigned>(a), nullptr, reinterpret_cast<rlimit64*>(b));
      case SYS_setrlimit:
        return guarded::prlimit(0, static_cast<unsigned>(a), reinterpret_cast<const rlimit64*>(b), nullptr);
      case SYS_prlimit64:
        return guarded::prlimit(static_cast<pid_t>(a), static_cast<unsigned>(b), reinterpret_cast<const rlimit64*>(c),
                                reinterpret_cast<rlimit64*>(d));
      case SYS_mlockall: return guarded::mlockall(static_cast<int>(a));
      case SYS_munlockall: return guarded::munlockall();
      case SYS_exit_group:
        if (state.end_process != nullptr) state.end_process(static_cast<int>(a));
        break;
      case SYS_rt_sigaction: {
        if (state.rt_sigaction == nullptr) break;
        const long result = state.rt_sigaction(static_cast<int>(a), reinterpret_cast<const void*>(b),
                                               reinterpret_cast<void*>(c), static_cast<std::size_t>(d));
        if (result >= 0) return result;
        errno = static_cast<int>(-result);
        return -1;
      }
      case SYS_unshare:
      case SYS_setns:
      case SYS_setuid:
      case SYS_setgid:
      case SYS_setreuid:
      case SYS_setregid:
      case SYS_setresuid:
      case SYS_setresgid:
      case SYS_setgroups: {
        const Alone alone;
        return real_syscall(number, a, b, c, d, e, f);
      }
      case SYS_prctl:
        return entry_prctl(static_cast<int>(a), static_cast<unsigned long>(b), static_cast<unsigned long>(c),
                           static_cast<unsigned long>(d), static_cast<unsigned long>(e));
      case SYS_seccomp: {
        prepare();
        const long result = real_syscall(number, a, b, c, d, e, f);
        const bool confines = a == SECCOMP_SET_MODE_STRICT || a == SECCOMP_SET_MODE_FILTER;
        if (confines && result >= 0) {
          confined(a == SECCOMP_SET_MODE_STRICT);
        } else {
          not_confined();
        }
        return result;
      }
      default: break;
    }
  }
  return real_syscall(number, a, b, c, d, e, f);
}

}  // namespace penumbra::libc
