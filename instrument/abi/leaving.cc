// What happens when compiled frames are left: the C++ half of leaving_x86_64.S.
//
// zone: nomalloc
#include "instrument/abi/leaving.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <ucontext.h>

#include <atomic>

#include "instrument/abi/abi.h"
#include "instrument/abi/compiled.h"
#include "instrument/abi/globals.h"
#include "instrument/abi/page_pool.h"
#include "instrument/abi/stack.h"
#include "instrument/abi/stack_bounds.h"
#include "runtime/base/check.h"
#include "runtime/base/export.h"
#include "runtime/base/locks.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/text_buffer.h"
#include "shadow/address_map.h"
#include "shadow/poison.h"

namespace penumbra::abi {
namespace {

// Laid out by LEAVING_SLOT.
struct Slot {
  const char* name;
  std::atomic<void*> next;
};
static_assert(sizeof(Slot) == 16);

// Index of the stack pointer in glibc's x86-64 jmp_buf (sysdeps/x86_64/jmpbuf-offsets.h), which glibc mangles.
constexpr std::size_t kJmpBufStackPointer = 6;

bool has_prefix(const char* name, const char* prefix) {
  for (; *prefix != 0; ++prefix, ++name) {
    if (*name != *prefix) return false;
  }
  return true;
}

AppAddr demangle(std::uintptr_t mangled) {
  std::uintptr_t guard;
  asm("movq %%fs:0x30, %0" : "=r"(guard));
  return AppAddr(((mangled >> 17) | (mangled << 47)) ^ guard);
}

AppAddr target_of(const ucontext_t* context) {
  return AppAddr(static_cast<std::uintptr_t>(context->uc_mcontext.gregs[REG_RSP]));
}

// A module loaded with RTLD_LOCAL has its C++ runtime in a scope of its own, where RTLD_NEXT does not look.
void* find_for_caller(const char* name, const void* caller) {
  Dl_info module;
  if (::dladdr(caller, &module) == 0) return nullptr;
  // RTLD_NOLOAD: only another handle of what is there. Not through our own name, which expects a new module.
  auto* const open = reinterpret_cast<decltype(&::dlopen)>(PENUMBRA_NEXT("dlopen"));
  void* const handle = open(module.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* const found = ::dlsym(handle, name);
  ::dlclose(handle);
  return found;
}

[[noreturn]] void no_definition(const char* name) {
  FixedTextBuffer<256> line;
  line.append("no definition of ").append(name).append(" behind ours");
  check_failed(__FILE__, __LINE__, line.c_str());
}

struct ThreadStart {
  void* (*routine)(void*);
  void* argument;
  void* stack;
};

constinit Mutex g_lock;
constinit PagePool<ThreadStart> g_starts;

using CreateThread = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

void leave_thread(void*) {
  end_thread_stack();
  if (hooks().thread_ends != nullptr) hooks().thread_ends();
}

// More than thread_main's frame below its frame pointer, and what it calls has returned by then.
constexpr std::size_t kOwnFrameBytes = 512;

// libc knows exactly, and may allocate to say it: not for a signal handler, but right for a thread that begins.
// Nor for a sealed process (process ruling 18): it asks the kernel for the thread's CPUs.
void remember_own_stack() {
  if (knows_own_stack() || os::is_sealed()) return;
  // libc's own: ours would ask who keeps this stack, which nobody does.
  static constinit std::atomic<void*> next{nullptr};
  if (next.load(std::memory_order_acquire) == nullptr) {
    next.store(PENUMBRA_NEXT("pthread_getattr_np"), std::memory_order_release);
  }
  auto* const describe = reinterpret_cast<int (*)(pthread_t, pthread_attr_t*)>(next.load(std::memory_order_acquire));
  pthread_attr_t attributes;
  if (describe == nullptr || describe(::pthread_self(), &attributes) != 0) return;
  void* low = nullptr;
  std::size_t bytes = 0;
  if (::pthread_attr_getstack(&attributes, &low, &bytes) == 0) set_own_stack(AppAddr(low));
  ::pthread_attr_destroy(&attributes);
}

// The first frame of a thread. libc's cleanup handlers run on return, pthread_exit and
// cancellation alike, and before the destructors of thread-specific data.
void* thread_main(void* box) {
  ThreadStart* const boxed = static_cast<ThreadStart*>(box);
  const ThreadStart start = *boxed;
  {
    const LockGuard guard(g_lock);
    g_starts.give(boxed);
  }
  if (hooks().thread_begins != nullptr) hooks().thread_begins(start.stack);
  if (has_compiled_code()) {
    remember_own_stack();
    begin_thread_stack(AppAddr(__builtin_frame_address(0)) - kOwnFrameBytes);
  }
  void* result;
  pthread_cleanup_push(leave_thread, nullptr);
  result = start.routine(start.argument);
  pthread_cleanup_pop(1);
  return result;
}

}  // namespace

extern "C" {

extern Slot __start_penumbra_abi_leaving_slots[] __attribute__((visibility("hidden")));
extern Slot __stop_penumbra_abi_leaving_slots[] __attribute__((visibility("hidden")));

// Finds the next definition of a name. What belongs to the process is kept; what belongs to the caller's module only
// is looked up each time, because another module may have another one.
__attribute__((visibility("hidden"))) void* penumbra_abi_resolve(Slot* slot, const void* caller) {
  const int error = errno;
  void* next = PENUMBRA_NEXT(slot->name);
  if (next != nullptr) {
    slot->next.store(next, std::memory_order_release);
  } else {
    next = find_for_caller(slot->name, caller);
  }
  errno = error;
  if (next == nullptr) no_definition(slot->name);
  return next;
}

// A personality is called by the unwinder; the module that refers to it is that of the frame in question. An unwinder
// that does not export how to ask for it is linked into that module itself (-static-libgcc).
__attribute__((visibility("hidden"))) void* penumbra_abi_resolve_personality(Slot* slot, const void* unwinder,
                                                                             void* frame) {
  using GetIp = std::uintptr_t (*)(void* context);
  const int error = errno;
  void* next = PENUMBRA_NEXT(slot->name);
  if (next != nullptr) {
    slot->next.store(next, std::memory_order_release);
  } else if (auto* const get_ip = reinterpret_cast<GetIp>(find_for_caller("_Unwind_GetIP", unwinder))) {
    next = find_for_caller(slot->name, AppAddr(get_ip(frame)).ptr<const void>());
  } else {
    next = find_for_caller(slot->name, unwinder);
  }
  errno = error;
  if (next == nullptr) no_definition(slot->name);
  return next;
}

__attribute__((visibility("hidden"))) void penumbra_abi_on_longjmp(const std::uintptr_t* buffer, void*, AppAddr sp) {
  abandon_frames_below(sp, demangle(buffer[kJmpBufStackPointer]));
}

__attribute__((visibility("hidden"))) void penumbra_abi_on_throw(void*, void*, AppAddr sp) {
  abandon_frames(sp);
}

__attribute__((visibility("hidden"))) void penumbra_abi_on_setcontext(const ucontext_t* to, void*, AppAddr sp) {
  enter_context(AppAddr(to->uc_stack.ss_sp), to->uc_stack.ss_size, target_of(to));
  abandon_frames_below(sp, target_of(to));
}

__attribute__((visibility("hidden"))) void penumbra_abi_on_swapcontext(void*, const ucontext_t* to, AppAddr sp) {
  enter_context(AppAddr(to->uc_stack.ss_sp), to->uc_stack.ss_size, target_of(to));
  abandon_frames_below(sp, target_of(to));
}

// Asking for another handle of what is there (RTLD_NOLOAD) loads nothing.
//
// A throw in another thread at this very moment may look before the module is there; its first registration of
// globals, report or noreturn call then tells.
__attribute__((visibility("hidden"))) void penumbra_abi_on_dlopen(void*, int mode) {
  if ((mode & RTLD_NOLOAD) == 0) expect_new_module();
}

__attribute__((visibility("hidden"))) void penumbra_abi_on_dlmopen() {
  expect_new_module();
}

// The thread begins in thread_main(), on a stack of ours if there is one for it. `next` is libc's pthread_create();
// this function was jumped to, so that its caller is pthread_create's.
__attribute__((visibility("hidden"))) int penumbra_abi_pthread_create(pthread_t* thread, const pthread_attr_t* wanted,
                                                                      void* (*routine)(void*), void* argument,
                                                                      CreateThread next) {
  const CodeContext caller = PENUMBRA_CALLER();
  if (!shadow::is_reserved() || (!has_compiled_code() && hooks().thread_begins == nullptr)) {
    return next(thread, wanted, routine, argument);
  }
  ThreadStart* start;
  {
    const LockGuard guard(g_lock);
    start = g_starts.take();
  }
  if (start == nullptr) return next(thread, wanted, routine, argument);
  pthread_attr_t given;
  void* const stack = hooks().lend_stack != nullptr ? hooks().lend_stack(wanted, given, caller) : nullptr;
  *start = {routine, argument, stack};
  const int error = next(thread, stack != nullptr ? &given : wanted, thread_main, start);
  if (stack != nullptr) hooks().thread_created(stack, wanted, given, error);
  if (error != 0) {
    const LockGuard guard(g_lock);
    g_starts.give(start);
  }
  return error;
}

__attribute__((visibility("hidden"))) long penumbra_abi_after_vfork(AppAddr sp, long result) {
  if (result < 0) {
    errno = static_cast<int>(-result);
    return -1;
  }
  begin_thread_stack(sp);
  return result;
}

}  // extern "C"

void resolve_leaving() {
  for (Slot* slot = __start_penumbra_abi_leaving_slots; slot != __stop_penumbra_abi_leaving_slots; ++slot) {
    // Those belong to the C++ runtime, which may not be there yet; the others are libc's.
    if (!has_prefix(slot->name, "__cxa_") && !has_prefix(slot->name, "__g") && !has_prefix(slot->name, "_Unwind_")) {
      penumbra_abi_resolve(slot, nullptr);
    }
  }
}

void fork_prepare() {
  lock_globals();
  g_lock.lock();
}

void fork_done() {
  g_lock.unlock();
  unlock_globals();
}

void fork_child_unprepared() {
  g_lock.reset_after_fork();
  reset_globals_lock();
}

}  // namespace penumbra::abi
