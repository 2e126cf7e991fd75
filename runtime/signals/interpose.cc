// The sigaction family by name: what the program sets for a covered signal (dispositions.h) gets a thunk of ours in front,
// and what it asks for is its own. All other signals pass through untouched. Where libc's own system calls come by us
// (rt_sigaction.h), they find the thunk already there.
//
// Not here because they are right without us, the kernel being the record: sigignore (SIG_IGN goes to the kernel as
// it is) and posix_spawn's resetting. siginterrupt is here for what it says about later calls of signal().
//
// zone: signal-safe, but for the first call of each real function
#include <errno.h>
#include <signal.h>

#include <atomic>

#include "runtime/base/export.h"
#include "runtime/base/os_process.h"
#include "runtime/signals/dispositions.h"
#include "runtime/signals/signals.h"

namespace penumbra::signals {
namespace {

// Signals for which the program said siginterrupt(signal, 1): signal() then sets no SA_RESTART.
constinit std::atomic<os::SignalSet> g_interrupting{0};

using SignalFunction = sighandler_t (*)(int, sighandler_t);
using SiginterruptFunction = int (*)(int, int);
using SigaltstackFunction = int (*)(const stack_t*, stack_t*);

template <class Function>
Function next(std::atomic<Function>& cache, const char* name) {
  Function real = cache.load(std::memory_order_acquire);
  if (real == nullptr) {
    real = reinterpret_cast<Function>(PENUMBRA_NEXT(name));
    cache.store(real, std::memory_order_release);
  }
  return real;
}

bool is_ours(int signal) {
  return is_watching() && is_covered(signal);
}

int set_action(int signal, const struct sigaction* wanted, struct sigaction* old) {
  if (!is_ours(signal)) return real_sigaction()(signal, wanted, old);
  struct sigaction held {};
  struct sigaction before {};
  if (wanted != nullptr) held = to_kernel(signal, *wanted);
  const int result = real_sigaction()(signal, wanted != nullptr ? &held : nullptr, &before);
  if (result == 0 && old != nullptr) *old = to_program(signal, before);
  return result;
}

sighandler_t set_handler(int signal, sighandler_t handler, int flags, bool blocks_itself) {
  if (handler == SIG_ERR) {
    errno = EINVAL;
    return SIG_ERR;
  }
  struct sigaction wanted {};
  struct sigaction old {};
  wanted.sa_handler = handler;
  wanted.sa_flags = flags;
  if (blocks_itself) sigaddset(&wanted.sa_mask, signal);
  return set_action(signal, &wanted, &old) == 0 ? old.sa_handler : SIG_ERR;
}

sighandler_t set_bsd(int signal, sighandler_t handler) {
  const bool interrupts = (g_interrupting.load(std::memory_order_relaxed) & os::signal_bit(signal)) != 0;
  return set_handler(signal, handler, interrupts ? 0 : SA_RESTART, true);
}

// SA_INTERRUPT is what glibc sets besides; the kernel ignores it and gives it back.
sighandler_t set_sysv(int signal, sighandler_t handler) {
  return set_handler(signal, handler, static_cast<int>(SA_RESETHAND | SA_NODEFER) | SA_INTERRUPT, false);
}

sighandler_t set_or_hold(int signal, sighandler_t handler) {
  const os::SignalSet bit = os::signal_bit(signal);
  struct sigaction old {};
  if (handler == SIG_HOLD) {
    if ((os::block_signals(bit) & bit) != 0) return SIG_HOLD;
    return set_action(signal, nullptr, &old) == 0 ? old.sa_handler : SIG_ERR;
  }
  const sighandler_t before = set_handler(signal, handler, 0, false);
  if (before == SIG_ERR) return SIG_ERR;
  const os::SignalSet blocked = os::block_signals(0);
  os::restore_signals(blocked & ~bit);
  return (blocked & bit) != 0 ? SIG_HOLD : before;
}

}  // namespace
}  // namespace penumbra::signals

using namespace penumbra::signals;

PENUMBRA_EXPORT int sigaction(int signal, const struct sigaction* action, struct sigaction* old) noexcept {
  return set_action(signal, action, old);
}

PENUMBRA_EXPORT int __sigaction(int signal, const struct sigaction* action, struct sigaction* old) noexcept {
  return set_action(signal, action, old);
}

PENUMBRA_EXPORT sighandler_t signal(int signal, sighandler_t handler) noexcept {
  static constinit std::atomic<SignalFunction> real{nullptr};
  return is_ours(signal) ? set_bsd(signal, handler) : next(real, "signal")(signal, handler);
}

PENUMBRA_EXPORT sighandler_t bsd_signal(int signal, sighandler_t handler) noexcept {
  static constinit std::atomic<SignalFunction> real{nullptr};
  return is_ours(signal) ? set_bsd(signal, handler) : next(real, "bsd_signal")(signal, handler);
}

PENUMBRA_EXPORT sighandler_t ssignal(int signal, sighandler_t handler) noexcept {
  static constinit std::atomic<SignalFunction> real{nullptr};
  return is_ours(signal) ? set_bsd(signal, handler) : next(real, "ssignal")(signal, handler);
}

PENUMBRA_EXPORT sighandler_t sysv_signal(int signal, sighandler_t handler) noexcept {
  static constinit std::atomic<SignalFunction> real{nullptr};
  return is_ours(signal) ? set_sysv(signal, handler) : next(real, "sysv_signal")(signal, handler);
}

PENUMBRA_EXPORT sighandler_t __sysv_signal(int signal, sighandler_t handler) noexcept {
  static constinit std::atomic<SignalFunction> real{nullptr};
  return is_ours(signal) ? set_sysv(signal, handler) : next(real, "__sysv_signal")(signal, handler);
}

PENUMBRA_EXPORT sighandler_t sigset(int signal, sighandler_t handler) noexcept {
  static constinit std::atomic<SignalFunction> real{nullptr};
  return is_ours(signal) ? set_or_hold(signal, handler) : next(real, "sigset")(signal, handler);
}

PENUMBRA_EXPORT int siginterrupt(int signal, int interrupt) noexcept {
  static constinit std::atomic<SiginterruptFunction> real{nullptr};
  const int result = next(real, "siginterrupt")(signal, interrupt);
  if (result != 0 || !is_ours(signal)) return result;
  if (interrupt != 0) {
    g_interrupting.fetch_or(penumbra::os::signal_bit(signal), std::memory_order_relaxed);
  } else {
    g_interrupting.fetch_and(~penumbra::os::signal_bit(signal), std::memory_order_relaxed);
  }
  return result;
}

PENUMBRA_EXPORT int sigaltstack(const stack_t* wanted, stack_t* old) noexcept {
  static constinit std::atomic<SigaltstackFunction> real{nullptr};
  stack_t before{};
  const bool disables = wanted != nullptr && (wanted->ss_flags & SS_DISABLE) != 0;  // `old` may be the same object
  const int result = next(real, "sigaltstack")(wanted, &before);
  if (result != 0) return result;
  if (old != nullptr) *old = is_own_stack(before) ? stack_t{nullptr, SS_DISABLE, 0} : before;
  if (is_watching() && disables) install_own_stack();
  return 0;
}
