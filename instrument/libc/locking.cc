#include "instrument/libc/locking.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>

#include "instrument/libc/entry.h"
#include "instrument/libc/guarded_calls.h"
#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/os_process.h"
#include "runtime/base/own_ranges.h"

namespace penumbra::libc {
namespace {

// Process that asked for MCL_FUTURE, and how. A fork child has neither, as in the kernel.
constinit std::atomic<int> g_future_pid{0};
constinit std::atomic<bool> g_future_on_fault{false};

bool locks_future() {
  const int pid = g_future_pid.load(std::memory_order_relaxed);
  return pid != 0 && pid == os::getpid();
}

// /proc/self/maps, line by line, through a buffer on the stack.
class MapsReader {
 public:
  MapsReader() : fd_(static_cast<int>(os::open_read("/proc/self/maps").value())) {}
  ~MapsReader() {
    if (is_open()) os::close(fd_).ignore();
  }
  MapsReader(const MapsReader&) = delete;
  MapsReader& operator=(const MapsReader&) = delete;

  bool is_open() const { return fd_ >= 0; }

  // The next mapping of user space; false at the end.
  bool next(AppRange& range) {
    std::uintptr_t begin;
    std::uintptr_t end;
    if (!number(begin) || !number(end)) return false;
    for (int c = get(); c != '\n'; c = get()) {
      if (c < 0) return false;
    }
    range = {AppAddr(begin), AppAddr(end)};
    return end <= kUserAddressEnd;
  }

 private:
  // A hexadecimal number and the character behind it.
  bool number(std::uintptr_t& value) {
    value = 0;
    for (bool any = false;; any = true) {
      const int c = get();
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<unsigned>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        value = value * 16 + static_cast<unsigned>(c - 'a' + 10);
      } else {
        return any && c >= 0;
      }
    }
  }

  int get() {
    if (at_ == filled_) {
      const os::Result got = os::read(fd_, buffer_, sizeof buffer_);
      if (!got.ok() || got.value() == 0) return -1;
      at_ = 0;
      filled_ = static_cast<std::size_t>(got.value());
    }
    return static_cast<unsigned char>(buffer_[at_++]);
  }

  int fd_;
  std::size_t at_ = 0;
  std::size_t filled_ = 0;
  char buffer_[1024];
};

// Calls visit(range) for all that is mapped and not ours; false where that cannot be listed.
template <class Visit>
bool visit_mappings(Visit visit) {
  MapsReader maps;
  if (!maps.is_open()) return false;
  AppRange range;
  while (maps.next(range)) {
    // The kernel joins neighbours that look alike, so a line may be ours in part.
    while (range.begin < range.end) {
      const AppRange foreign = own_ranges::first_foreign(range);
      if (foreign.begin < foreign.end) visit(foreign);
      range.begin = foreign.end;
    }
  }
  return true;
}

// The kernel's order of refusals (mm/mlock.c).
int refusal(int flags) {
  constexpr int kKnown = MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT;
  if (flags == 0 || (flags & ~kKnown) != 0 || flags == MCL_ONFAULT) return EINVAL;
  if (os::has_capability(CAP_IPC_LOCK)) return 0;
  rlimit64 limit{};
  os::limits(RLIMIT_MEMLOCK, nullptr, &limit).ignore();
  if (limit.rlim_cur == 0) return EPERM;
  if ((flags & MCL_CURRENT) == 0) return 0;
  std::size_t total = 0;
  if (!visit_mappings([&](AppRange range) { total += range.bytes(); })) return EPERM;
  return total > limit.rlim_cur ? ENOMEM : 0;
}

int lock_all(int flags) {
  if (const int error = refusal(flags)) return error;
  const bool on_fault = (flags & MCL_ONFAULT) != 0;
  // As in the kernel a call without MCL_FUTURE ends an earlier one's.
  g_future_on_fault.store(on_fault, std::memory_order_relaxed);
  g_future_pid.store((flags & MCL_FUTURE) != 0 ? os::getpid() : 0, std::memory_order_relaxed);
  if ((flags & MCL_CURRENT) == 0) return 0;
  // A mapping that cannot be filled (PROT_NONE) is locked all the same, and mlockall says nothing about it.
  const bool listed =
      visit_mappings([&](AppRange range) { os::lock_memory(range.begin, range.bytes(), on_fault).ignore(); });
  return listed ? 0 : EPERM;
}

}  // namespace

bool lock_new_mapping(AppRange range, int prot) {
  if (!locks_future()) [[likely]]
    return true;
  const os::Result locked =
      os::lock_memory(range.begin, range.bytes(), g_future_on_fault.load(std::memory_order_relaxed));
  return locked.ok() || prot == PROT_NONE;
}

PENUMBRA_LIBC_DECLARE(int, mlockall, (int flags))
PENUMBRA_LIBC_DECLARE(int, munlockall, ())

namespace guarded {

int mlockall(int flags) {
  if (!state.is_host) return real_mlockall(flags);
  const int error = lock_all(flags);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

int munlockall() {
  if (state.is_host) g_future_pid.store(0, std::memory_order_relaxed);
  return real_munlockall();
}

}  // namespace guarded

int entry_mlockall(int flags) {
  return guarded::mlockall(flags);
}

int entry_munlockall() {
  return guarded::munlockall();
}

}  // namespace penumbra::libc
