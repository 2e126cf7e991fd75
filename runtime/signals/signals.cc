#include "runtime/signals/signals.h"

#include <sys/syscall.h>

#include <atomic>

#include "runtime/base/export.h"
#include "runtime/base/os_process.h"
#include "runtime/signals/dispositions.h"
#include "runtime/signals/thread_stacks.h"

namespace penumbra::signals {
namespace {

constinit std::atomic<bool> g_watching{false};
constinit std::atomic<SigactionFunction> g_real_sigaction{nullptr};
using SpanTest = bool (*)(AppAddr);
constinit SpanTest g_in_span = nullptr;
using StackTest = StackPart (*)(AppAddr);
constinit StackTest g_stack_part = nullptr;
constinit ResumeHook g_resume = nullptr;
// The alternate stack that this thread has from us, whether or not it is the one in force.
constinit thread_local std::uint8_t* t_own_stack = nullptr;
alignas(16) constinit std::uint8_t g_main_stack[kThreadStackBytes] = {};

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

bool is_watching() {
  return g_watching.load(std::memory_order_acquire);
}

void set_resume_hook(ResumeHook hook) {
  g_resume = hook;
}

bool is_resumed(void* ucontext) {
  return g_resume != nullptr && g_resume(ucontext);
}

bool in_span(AppAddr a) {
  return g_in_span != nullptr && g_in_span(a);
}

StackPart stack_part(AppAddr a) {
  return g_stack_part != nullptr ? g_stack_part(a) : StackPart::kNone;
}

void reset_to_default(int signal) {
  struct sigaction now {};
  if (real_sigaction()(signal, nullptr, &now) != 0) return;
  struct sigaction wanted = to_program(signal, now);
  wanted.sa_handler = SIG_DFL;
  const struct sigaction held = to_kernel(signal, wanted);
  real_sigaction()(signal, &held, nullptr);
}

bool is_own_stack(const stack_t& stack) {
  return t_own_stack != nullptr && stack.ss_sp == t_own_stack;
}

void install_own_stack() {
  if (t_own_stack == nullptr) return;
  stack_t now{};
  if (!alternate_stack(nullptr, &now).ok() || (now.ss_flags & SS_DISABLE) == 0) return;
  const stack_t own{t_own_stack, 0, kThreadStackBytes};
  alternate_stack(&own, nullptr).ignore();
}

void thread_begins() {
  if (!is_watching() || os::is_sealed()) return;
  t_own_stack = take_thread_stack_memory();
  install_own_stack();
}

void thread_ends() {
  std::uint8_t* const own = t_own_stack;
  if (own == nullptr || own == g_main_stack || os::is_sealed()) return;
  stack_t now{};
  if (!alternate_stack(nullptr, &now).ok()) return;
  const stack_t off{nullptr, SS_DISABLE, 0};
  // Refused where a handler on it ends the thread.
  if (is_own_stack(now) && !alternate_stack(&off, nullptr).ok()) return;
  t_own_stack = nullptr;
  give_thread_stack_memory(own);
}

void fork_child() {
  reset_thread_stacks_after_fork();
}

void init(bool (*span_test)(AppAddr), StackPart (*stack_test)(AppAddr)) {
  g_in_span = span_test;
  g_stack_part = stack_test;
  for (const int signal : {SIGSEGV, SIGBUS}) {
    struct sigaction inherited {};
    if (real_sigaction()(signal, nullptr, &inherited) != 0 || inherited.sa_handler != SIG_DFL) continue;
    const struct sigaction held = untouched_default();
    real_sigaction()(signal, &held, nullptr);
  }
  t_own_stack = g_main_stack;
  install_own_stack();
  g_watching.store(true, std::memory_order_release);
}

}  // namespace penumbra::signals
