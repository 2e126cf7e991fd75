#include "runtime/base/own_thread.h"

#include <link.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "runtime/base/check.h"
#include "runtime/base/config.h"
#include "runtime/base/os_process.h"
#include "runtime/base/raw_memory.h"

extern "C" long penumbra_clone_thread(unsigned long flags, void* top, void (*function)(void*), void* argument,
                                      std::atomic<std::uint32_t>* tid, void* fs);

namespace penumbra {
namespace {

// glibc's thread descriptor begins at fs (sysdeps/x86_64/nptl/tls.h): itself, two pointers on, the address of itself again,
// at 0x28 and 0x30 the canary and the key of mangled pointers.
constexpr std::size_t kDescriptorBytes = kPageSize;
constexpr std::size_t kSelfWord = 0;
constexpr std::size_t kSelfAgainWord = 2;
constexpr std::size_t kCanaryWord = 5;
constexpr std::size_t kPointerKeyWord = 6;

// The marker lies among the thread-local variables of this module.
constinit thread_local char t_marker = 0;

struct ThreadLocals {
  std::size_t below = 0;        // bytes from the begin of this module's variables to fs
  const void* image = nullptr;  // their initial values, of which the first
  std::size_t image_bytes = 0;  // are not zero
};
constinit ThreadLocals g_locals;

int find_this_module(dl_phdr_info* info, std::size_t size, void*) {
  if (size < offsetof(dl_phdr_info, dlpi_tls_data) + sizeof info->dlpi_tls_data || info->dlpi_tls_data == nullptr) {
    return 0;
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(info->dlpi_tls_data);
  const std::uintptr_t fs = os::thread_pointer().value;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_TLS) continue;
    const auto marker = reinterpret_cast<std::uintptr_t>(&t_marker);
    if (marker < begin || marker >= begin + header.p_memsz || begin > fs) continue;
    g_locals = {fs - begin, reinterpret_cast<const void*>(info->dlpi_addr + header.p_vaddr), header.p_filesz};
    return 1;
  }
  return 0;
}

}  // namespace

void OwnThread::learn_thread_locals() {
  if (g_locals.below == 0) dl_iterate_phdr(find_this_module, nullptr);
}

bool OwnThread::map_memory() {
  if (!memory_.is_null()) return true;
  // fs keeps its place in a page, and with it the alignment of every variable.
  const std::size_t bytes =
      kPageSize + kStackBytes + round_up(g_locals.below, kPageSize) + kPageSize + kDescriptorBytes;
  const os::Result mapped = os::map_anonymous(bytes);
  if (!mapped.ok()) return false;
  if (!os::protect(mapped.address(), kPageSize, PROT_NONE).ok()) {
    os::unmap(mapped.address(), bytes).ignore();
    return false;
  }
  memory_ = mapped.address();
  bytes_ = bytes;
  return true;
}

void OwnThread::destroy() {
  if (!memory_.is_null()) os::unmap(memory_, bytes_).ignore();
  memory_ = AppAddr();
}

void OwnThread::enter(void* self) {
  auto& thread = *static_cast<OwnThread*>(self);
  // Here, and not by who started it: it may be over before that one runs again.
  thread.last_tid_.store(thread.tid_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  os::raw_syscall(SYS_prctl, PR_SET_NAME, reinterpret_cast<long>(thread.name_));
  // A real-time thread that started us must not make us one: whoever waits for us may have a lower priority.
  const sched_param no_priority{};
  const long policy = os::raw_syscall(SYS_sched_getscheduler, 0) & ~SCHED_RESET_ON_FORK;
  if (policy == SCHED_FIFO || policy == SCHED_RR) {
    os::raw_syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, reinterpret_cast<long>(&no_priority));
  }
  thread.function_(thread.argument_);
}

bool OwnThread::start(const char* name, void (*function)(void*), void* argument) {
  if (os::is_sealed() || !is_gone() || g_locals.below == 0 || !map_memory()) return false;
  name_ = name;
  function_ = function;
  argument_ = argument;
  const AppAddr own = os::thread_pointer();
  const auto* const mine = own.ptr<const std::uintptr_t>();
  const AppAddr top = memory_ + (kPageSize + kStackBytes);
  const std::uintptr_t in_page = own.value % kPageSize;
  const AppAddr fs(round_up(top.value + g_locals.below, kPageSize) + in_page);
  const AppAddr locals = fs - g_locals.below;
  raw_set(locals.ptr(), 0, g_locals.below);
  raw_copy(locals.ptr(), g_locals.image, g_locals.image_bytes);
  auto* const words = fs.ptr<std::uintptr_t>();
  words[kSelfWord] = words[kSelfAgainWord] = fs.value;
  words[kCanaryWord] = mine[kCanaryWord];
  words[kPointerKeyWord] = mine[kPointerKeyWord];
  constexpr unsigned long kFlags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                                   CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
  // Inherited, so that there is no moment in which it takes a signal.
  const os::SignalSet old = os::block_signals(~os::SignalSet{0});
  const os::Result made(penumbra_clone_thread(kFlags, top.ptr<void>(), enter, this, &tid_, words));
  os::restore_signals(old);
  return made.ok();
}

bool OwnThread::wait_gone(std::uint64_t ns) {
  const std::uint64_t until = os::monotonic_ns() + ns;
  for (std::uint32_t tid = tid_.load(std::memory_order_acquire); tid != 0;
       tid = tid_.load(std::memory_order_acquire)) {
    // The kernel wakes this word's sleepers without FUTEX_PRIVATE_FLAG, and only one of them.
    constexpr timespec kMoment{0, 1'000'000};
    os::raw_syscall(SYS_futex, reinterpret_cast<long>(&tid_), FUTEX_WAIT, tid, reinterpret_cast<long>(&kMoment));
    if (os::is_sealed() || os::monotonic_ns() > until) return false;
  }
  // Its word is cleared before it leaves the thread group, which unshare() and setns() count.
  std::uint32_t last = last_tid_.load(std::memory_order_relaxed);
  while (last != 0 && !os::is_sealed() && os::thread_exists(os::getpid(), static_cast<int>(last))) {
    if (os::monotonic_ns() > until) return false;
    os::yield();
  }
  // Once it is gone its number may become another thread's, whom nobody waits for.
  if (last != 0) last_tid_.compare_exchange_strong(last, 0, std::memory_order_relaxed);
  return true;
}

}  // namespace penumbra
