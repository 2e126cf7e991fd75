#include "instrument/libc/resource_limits.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <algorithm>

#include "instrument/libc/entry.h"
#include "instrument/libc/guarded_calls.h"
#include "instrument/libc/init.h"
#include "instrument/libc/kernel_io.h"
#include "runtime/base/config.h"
#include "runtime/base/os_process.h"
#include "runtime/base/own_ranges.h"

namespace penumbra::libc {
namespace {

// What our tables may still grow by, and the grain of the sum, so that a child which maps a little more or less than
// its parent reads the same limit.
constexpr std::size_t kGrain = std::size_t{64} << 20;

// One value of a limit as the kernel has it and as the program knows it.
struct Hidden {
  rlim64_t passed = 0;  // 0: nothing is hidden
  rlim64_t visible = 0;

  rlim64_t seen(rlim64_t kernel) const { return passed != 0 && kernel == passed ? visible : kernel; }
};

struct HiddenLimit {
  Hidden soft;
  Hidden hard;

  rlimit64 seen(const rlimit64& kernel) const { return {soft.seen(kernel.rlim_cur), hard.seen(kernel.rlim_max)}; }
};

constinit HiddenLimit g_address_space;
constinit HiddenLimit g_data;

// Null for the other resources.
HiddenLimit* hidden_limit(unsigned resource) {
  switch (resource) {
    case RLIMIT_AS: return &g_address_space;
    case RLIMIT_DATA: return &g_data;
    default: return nullptr;
  }
}

rlim64_t own_bytes(unsigned resource) {
  const std::size_t bytes = resource == RLIMIT_AS ? own_ranges::total_bytes() : own_ranges::data_bytes();
  return round_up(bytes + kGrain, kGrain);
}

rlim64_t with_own_bytes(unsigned resource, rlim64_t value) {
  rlim64_t sum;
  if (value == RLIM64_INFINITY || __builtin_add_overflow(value, own_bytes(resource), &sum)) return RLIM64_INFINITY;
  return sum;
}

os::Result get(unsigned resource, rlimit64& kernel) {
  return os::limits(resource, nullptr, &kernel);
}

os::Result set(unsigned resource, HiddenLimit& hidden, const rlimit64& wanted, const rlimit64& kernel) {
  if (wanted.rlim_cur > wanted.rlim_max) return os::Result(-EINVAL);
  const rlim64_t hard_seen = hidden.hard.seen(kernel.rlim_max);
  rlimit64 passed{};
  if (wanted.rlim_max == hard_seen) {
    passed.rlim_max = kernel.rlim_max;
  } else {
    passed.rlim_max = with_own_bytes(resource, wanted.rlim_max);
    // Lowering it a little must not raise it by our bytes, which only root may.
    if (wanted.rlim_max < hard_seen) passed.rlim_max = std::min(passed.rlim_max, kernel.rlim_max);
  }
  passed.rlim_cur = std::min(with_own_bytes(resource, wanted.rlim_cur), passed.rlim_max);
  const os::Result done = os::limits(resource, &passed, nullptr);
  if (done.ok()) {
    hidden.soft = {passed.rlim_cur, wanted.rlim_cur};
    hidden.hard = {passed.rlim_max, wanted.rlim_max};
  }
  return done;
}

// prlimit on this process, for the two resources.
os::Result exchange(unsigned resource, HiddenLimit& hidden, const rlimit64* wanted, rlimit64* old) {
  rlimit64 kernel{};
  os::Result result = get(resource, kernel);
  if (!result.ok()) return result;
  const rlimit64 seen = hidden.seen(kernel);
  if (wanted != nullptr) result = set(resource, hidden, *wanted, kernel);
  if (result.ok() && old != nullptr) *old = seen;
  return result;
}

// True where pid names the calling process.
bool is_self(pid_t pid) {
  return pid == 0 || pid == os::getpid();
}

}  // namespace

void hide_inherited_limits() {
  for (const unsigned resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit64 kernel{};
    if (!get(resource, kernel).ok()) continue;
    const rlim64_t ours = own_bytes(resource);
    const auto inherited = [ours](rlim64_t value) -> Hidden {
      if (value == RLIM64_INFINITY || value <= ours) return {};
      return {value, value - ours};
    };
    HiddenLimit& hidden = *hidden_limit(resource);
    hidden.soft = inherited(kernel.rlim_cur);
    hidden.hard = inherited(kernel.rlim_max);
  }
}

// Reads our memory only: in a vfork child it is the parent's. The hard limit can be taken back only by whoever may
// raise it again, as exec may fail; without that right a program started without us sees the sum there.
void before_exec() {
  const bool may_raise = os::has_capability(CAP_SYS_RESOURCE);
  for (const unsigned resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit64 kernel{};
    if (!get(resource, kernel).ok()) continue;
    rlimit64 seen = hidden_limit(resource)->seen(kernel);
    if (!may_raise) seen.rlim_max = kernel.rlim_max;
    if (seen.rlim_cur != kernel.rlim_cur || seen.rlim_max != kernel.rlim_max)
      os::limits(resource, &seen, nullptr).ignore();
  }
}

void exec_failed() {
  for (const unsigned resource : {RLIMIT_AS, RLIMIT_DATA}) {
    const HiddenLimit& hidden = *hidden_limit(resource);
    rlimit64 kernel{};
    if (!get(resource, kernel).ok()) continue;
    const rlimit64 before = kernel;
    if (hidden.soft.passed != 0 && kernel.rlim_cur == hidden.soft.visible) kernel.rlim_cur = hidden.soft.passed;
    if (hidden.hard.passed != 0 && kernel.rlim_max == hidden.hard.visible) kernel.rlim_max = hidden.hard.passed;
    if (kernel.rlim_cur != before.rlim_cur || kernel.rlim_max != before.rlim_max) {
      os::limits(resource, &kernel, nullptr).ignore();
    }
  }
}

// struct rlimit and struct rlimit64 are the same on x86-64.
PENUMBRA_LIBC_DECLARE(int, getrlimit, (unsigned resource, rlimit64* to))
PENUMBRA_LIBC_DECLARE(int, getrlimit64, (unsigned resource, rlimit64* to))
PENUMBRA_LIBC_DECLARE(int, setrlimit, (unsigned resource, const rlimit64* from))
PENUMBRA_LIBC_DECLARE(int, setrlimit64, (unsigned resource, const rlimit64* from))
PENUMBRA_LIBC_DECLARE(int, prlimit, (pid_t pid, unsigned resource, const rlimit64* from, rlimit64* to))
PENUMBRA_LIBC_DECLARE(int, prlimit64, (pid_t pid, unsigned resource, const rlimit64* from, rlimit64* to))

namespace guarded {

int prlimit(pid_t pid, unsigned resource, const rlimit64* from, rlimit64* to) {
  HiddenLimit* const hidden = hidden_limit(resource);
  if (!state.is_host || hidden == nullptr || !is_self(pid)) return real_prlimit64(pid, resource, from, to);
  const os::Result result = exchange(resource, *hidden, from, to);
  if (result.ok()) return 0;
  errno = result.error();
  return -1;
}

}  // namespace guarded

namespace {

int exchange_checked(const Touch& touch, pid_t pid, unsigned resource, const rlimit64* from, rlimit64* to) {
  if (!checks_on()) return guarded::prlimit(pid, resource, from, to);
  if (from != nullptr) touch.kernel_reads(from, sizeof *from);
  const int result = guarded::prlimit(pid, resource, from, to);
  stored(touch, to, result);
  return result;
}

}  // namespace

#define PENUMBRA_TOUCH(name) Touch(#name, __builtin_frame_address(0))

int entry_getrlimit(unsigned resource, rlimit64* to) {
  if (to == nullptr) return real_getrlimit(resource, to);
  return exchange_checked(PENUMBRA_TOUCH(getrlimit), 0, resource, nullptr, to);
}

int entry_getrlimit64(unsigned resource, rlimit64* to) {
  if (to == nullptr) return real_getrlimit64(resource, to);
  return exchange_checked(PENUMBRA_TOUCH(getrlimit64), 0, resource, nullptr, to);
}

int entry_setrlimit(unsigned resource, const rlimit64* from) {
  if (from == nullptr) return real_setrlimit(resource, from);
  return exchange_checked(PENUMBRA_TOUCH(setrlimit), 0, resource, from, nullptr);
}

int entry_setrlimit64(unsigned resource, const rlimit64* from) {
  if (from == nullptr) return real_setrlimit64(resource, from);
  return exchange_checked(PENUMBRA_TOUCH(setrlimit64), 0, resource, from, nullptr);
}

int entry_prlimit(pid_t pid, unsigned resource, const rlimit64* from, rlimit64* to) {
  return exchange_checked(PENUMBRA_TOUCH(prlimit), pid, resource, from, to);
}

int entry_prlimit64(pid_t pid, unsigned resource, const rlimit64* from, rlimit64* to) {
  return exchange_checked(PENUMBRA_TOUCH(prlimit64), pid, resource, from, to);
}

}  // namespace penumbra::libc
