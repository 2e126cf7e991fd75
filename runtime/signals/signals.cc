#include "runtime/signals/signals.h"

#include <sys/syscall.h>

#include <atomic>

#include "runtime/base/export.h"
#include "runtime/base/os_process.h"
#include "runtime/signals/dispositions.h"

namespace penumbra::signals {
namespace {

// Room for the kernel's frame with every vector state there is (AMX: 11 KiB), the program's own needs aside; the
// report itself has another stack.
constexpr std::size_t kOwnStackBytes = 64 << 10;

constinit std::atomic<bool> g_watching{false};
constinit std::atomic<SigactionFunction> g_real_sigaction{nullptr};
using SpanTest = bool (*)(AppAddr);
constinit SpanTest g_in_span = nullptr;
constinit ResumeHook g_resume = nullptr;
constinit thread_local bool t_is_main = false;
alignas(16) constinit std::uint8_t g_own_stack[kOwnStackBytes] = {};

os::Result alternate_stack(const stack_t* wanted, stack_t* old) {
  return os::Result(os::raw_syscall(SYS_sigaltstack, reinterpret_cast<long>(wanted), reinterpret_cast<long>(old)));
}

}  // namespace

SigactionFunction real_sigaction() {
  SigactionFunction real = g_real_sigaction.load(std::memory_order_acquire);
  if (real == nullptr) {
    real = reinterpret_cast<SigactionFunction>(PENUMBRA_NEXT("sigaction"));
    g_real_sigaction.store(real, std::memory_order_release);
  }
  return real;
}

bool is_watching() { return g_watching.load(std::memory_order_acquire); }

void set_resume_hook(ResumeHook hook) { g_resume = hook; }

bool is_resumed(void* ucontext) { return g_resume != nullptr && g_resume(ucontext); }

bool in_span(AppAddr a) { return g_in_span != nullptr && g_in_span(a); }

void reset_to_default(int signal) {
  struct sigaction now {};
  if (real_sigaction()(signal, nullptr, &now) != 0) return;
  struct sigaction wanted = to_program(now);
  wanted.sa_handler = SIG_DFL;
  const struct sigaction held = to_kernel(wanted);
  real_sigaction()(signal, &held, nullptr);
}

bool is_own_stack(const stack_t& stack) { return stack.ss_sp == g_own_stack; }

void install_own_stack() {
  if (!t_is_main) return;
  stack_t now{};
  if (!alternate_stack(nullptr, &now).ok() || (now.ss_flags & SS_DISABLE) == 0) return;
  const stack_t own{g_own_stack, 0, sizeof g_own_stack};
  alternate_stack(&own, nullptr).ignore();
}

void init(bool (*span_test)(AppAddr)) {
  g_in_span = span_test;
  for (const int signal : {SIGSEGV, SIGBUS}) {
    struct sigaction inherited {};
    if (real_sigaction()(signal, nullptr, &inherited) != 0 || inherited.sa_handler != SIG_DFL) continue;
    const struct sigaction held = untouched_default();
    real_sigaction()(signal, &held, nullptr);
  }
  t_is_main = true;
  install_own_stack();
  g_watching.store(true, std::memory_order_release);
}

}  // namespace penumbra::signals
