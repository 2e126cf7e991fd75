#include "runtime/pthread_stacks.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>

#include "allocator/region/process_regions.h"
#include "allocator/region/stack_pool.h"
#include "allocator/region/thread_hint.h"
#include "instrument/abi/stack_bounds.h"
#include "runtime/api_regions.h"
#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/os_process.h"
#include "runtime/stacks/code_modules.h"
#include "runtime/stacks/stack_memory.h"

namespace penumbra::runtime {
namespace {

using region::Stack;

// Its thread id lies in a thread's control block; further away it would not be glibc's.
constexpr std::ptrdiff_t kControlBlockBytes = 8192;

// Of the upper end of a stack: that of the thread-local memory above it, at least 64 on x86-64.
constexpr std::size_t kStackAlignment = 64;

// From a thread pointer to the word that the kernel sets to 0 when the thread is gone; 0: not known.
constinit std::ptrdiff_t g_tid_offset = 0;
// How often modules had been loaded when their headers were last looked at, and what was seen.
constinit std::atomic<unsigned long long> g_modules_seen{0};
constinit std::atomic<bool> g_executable_stacks{false};
constinit thread_local Stack* t_stack = nullptr;

// glibc names that word to the kernel, which tells where it is (PR_GET_TID_ADDRESS): at the same place in every
// thread's block.
std::ptrdiff_t find_tid_offset() {
  std::atomic<std::int32_t>* word = nullptr;
  const long got = os::raw_syscall(SYS_prctl, PR_GET_TID_ADDRESS, reinterpret_cast<long>(&word));
  if (got != 0 || word == nullptr) return 0;
  const auto offset = static_cast<std::ptrdiff_t>(AppAddr(word).value - os::thread_pointer().value);
  if (offset <= 0 || offset >= kControlBlockBytes || word->load(std::memory_order_relaxed) != os::gettid()) return 0;
  return offset;
}

bool wants_executable_stack(const dl_phdr_info& module) {
  for (unsigned i = 0; i < module.dlpi_phnum; ++i) {
    if (module.dlpi_phdr[i].p_type == PT_GNU_STACK) return (module.dlpi_phdr[i].p_flags & PF_X) != 0;
  }
  return false;
}

// Once true, for good: glibc does not take it back either.
bool has_executable_stacks() {
  if (g_executable_stacks.load(std::memory_order_relaxed)) return true;
  unsigned long long loaded = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* adds) {
        *static_cast<unsigned long long*>(adds) = info->dlpi_adds;
        if (info->dlpi_adds == g_modules_seen.load(std::memory_order_relaxed)) return 1;
        if (!wants_executable_stack(*info)) return 0;
        g_executable_stacks.store(true, std::memory_order_relaxed);
        return 1;
      },
      &loaded);
  g_modules_seen.store(loaded, std::memory_order_relaxed);
  return g_executable_stacks.load(std::memory_order_relaxed);
}

// A thread's handle is the address of its control block, at the top of its stack.
Stack* stack_of(pthread_t thread) {
  return region::process_stacks().at(AppAddr(thread));
}

// The same for any address in a stack or its guard, while it is lent; else null.
Stack* lent_stack_at(AppAddr a) {
  Stack* const stack = region::process_stacks().at(a);
  return stack != nullptr && stack->state.load(std::memory_order_acquire) == region::StackState::kLent ? stack
                                                                                                       : nullptr;
}

void on_joined(pthread_t thread, const CodeContext& caller) {
  Stack* const stack = stack_of(thread);
  if (stack != nullptr) region::process_stacks().give(*stack, record_stack(caller), region::this_thread_id());
}

void on_detached(pthread_t thread) {
  Stack* const stack = stack_of(thread);
  if (stack != nullptr) region::process_stacks().detach(*stack);
}

void on_described(pthread_t thread, pthread_attr_t& attributes) {
  const Stack* const stack = stack_of(thread);
  if (stack != nullptr) ::pthread_attr_setguardsize(&attributes, stack->asked_guard);
}

bool on_change(AppRange range) {
  Stack* const stack = lent_stack_at(range.begin);
  if (stack == nullptr || range.begin < stack->low || range.end > stack->high()) return false;
  region::process_stacks().note_change(*stack);
  return true;
}

// pthread_attr_getstack() answers nonsense where no address was set, and this one null.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
bool has_own_address(const pthread_attr_t& attributes) {
  void* address = nullptr;
  return ::pthread_attr_getstackaddr(&attributes, &address) != 0 || address != nullptr;
}
#pragma GCC diagnostic pop

// Of the same attributes as glibc would use, but for the stack: a copy shares what they point to.
bool name_stack(pthread_attr_t& attributes, Stack*& stack, const CodeContext& caller) {
  std::size_t bytes = 0;
  std::size_t guard = 0;
  int detached = PTHREAD_CREATE_JOINABLE;
  if (::pthread_attr_getstacksize(&attributes, &bytes) != 0 ||
      ::pthread_attr_getguardsize(&attributes, &guard) != 0 ||
      ::pthread_attr_getdetachstate(&attributes, &detached) != 0) {
    return false;
  }
  // A guard costs no memory, so there is always one.
  const std::size_t asked_guard = round_up(guard, kPageSize);
  const std::size_t whole = round_up(bytes, kPageSize);
  if (bytes == 0 || whole < bytes || asked_guard < guard) return false;
  stack = region::process_stacks().take(whole, std::max(asked_guard, kPageSize), record_stack(caller),
                                        region::this_thread_id());
  if (stack == nullptr) return false;
  stack->asked_guard = asked_guard;
  if (detached == PTHREAD_CREATE_DETACHED) region::process_stacks().detach(*stack);
  // As glibc cuts it.
  if (::pthread_attr_setstack(&attributes, stack->low.ptr<void>(), round_down(bytes, kStackAlignment)) == 0)
    return true;
  region::process_stacks().give(*stack, kNoStack, region::this_thread_id());
  return false;
}

}  // namespace

void init_pthread_stacks() {
  g_tid_offset = find_tid_offset();
  if (g_tid_offset == 0 || !region::process_stacks().init(region::process_regions())) return;
  // glibc frees a vector for each thread that ends on a stack of the user's.
  Dl_info found;
  ElfW(Sym)* symbol = nullptr;
  void* const freer = ::dlsym(RTLD_DEFAULT, "_dl_deallocate_tls");
  if (freer == nullptr || ::dladdr1(freer, &found, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT) == 0) return;
  if (symbol != nullptr) stacks::set_tls_freer(AppAddr(freer).value, symbol->st_size);
}

libc::ThreadHooks pthread_stack_hooks() {
  if (!region::process_stacks().is_initialized()) return {};
  return {.joined = on_joined, .detached = on_detached, .described = on_described, .changes_stack = on_change};
}

void* lend_pthread_stack(const pthread_attr_t* wanted, pthread_attr_t& given, const CodeContext& caller) {
  if (!region::process_stacks().is_initialized() || os::is_sealed() || has_executable_stacks()) return nullptr;
  Stack* stack = nullptr;
  if (wanted != nullptr) {
    given = *wanted;
    if (has_own_address(given) || !name_stack(given, stack, caller)) return nullptr;
  } else {
    if (::pthread_getattr_default_np(&given) != 0) return nullptr;
    // The copy owns what it points to (a set of CPUs): until the thread is there.
    if (!name_stack(given, stack, caller)) {
      ::pthread_attr_destroy(&given);
      return nullptr;
    }
  }
  stacks::expect_thread_set_up(true);
  return stack;
}

void pthread_created(void* stack, const pthread_attr_t* wanted, pthread_attr_t& given, int error) {
  stacks::expect_thread_set_up(false);
  if (wanted == nullptr) ::pthread_attr_destroy(&given);
  // glibc has waited for a thread that it had to take back.
  if (error != 0) {
    region::process_stacks().give(*static_cast<Stack*>(stack), kNoStack, region::this_thread_id());
  }
}

void enter_pthread_stack(void* stack) {
  if (stack == nullptr) return;
  t_stack = static_cast<Stack*>(stack);
  const AppAddr tp = os::thread_pointer();
  region::process_stacks().enter(*t_stack,
                                 (tp + static_cast<std::size_t>(g_tid_offset)).ptr<std::atomic<std::int32_t>>());
  abi::set_own_stack(t_stack->low);
  stacks::set_own_stack(t_stack->low.value, tp.value);
}

void leave_pthread_stack() {
  Stack* const stack = t_stack;
  if (stack == nullptr) return;
  t_stack = nullptr;
  region::process_stacks().leave(*stack, region::this_thread_id(), AppAddr(__builtin_frame_address(0)));
}

signals::StackPart pthread_stack_part(AppAddr a) {
  const Stack* const stack = lent_stack_at(a);
  if (stack == nullptr) return signals::StackPart::kNone;
  return a < stack->low ? signals::StackPart::kGuard : signals::StackPart::kInside;
}

void fork_pthread_stacks_child(bool prepared) {
  if (prepared) {
    region::process_stacks().fork_child(os::thread_pointer());
  } else {
    region::process_stacks().fork_child_unprepared(os::thread_pointer());
  }
}

}  // namespace penumbra::runtime
