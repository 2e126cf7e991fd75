#include "runtime/signals/rt_sigaction.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include "runtime/base/config.h"
#include "runtime/base/export.h"
#include "runtime/base/os_process.h"
#include "runtime/base/raw_memory.h"
#include "runtime/signals/dispositions.h"
#include "runtime/signals/signals.h"

extern "C" {
extern const char penumbra_rt_sigaction_site[];
__attribute__((visibility("hidden"))) long penumbra_on_rt_sigaction(int signal, const void* wanted, void* old,
                                                                    std::size_t mask_bytes);
}

namespace penumbra::signals {
namespace {

// The kernel's struct sigaction (arch/x86/include/uapi/asm/signal.h), which is not libc's.
struct KernelAction {
  sighandler_t handler;
  unsigned long flags;
  void (*restorer)();
  os::SignalSet mask;
};

struct sigaction to_libc(const KernelAction& action) {
  struct sigaction converted {};
  converted.sa_handler = action.handler;
  converted.sa_flags = static_cast<int>(action.flags);
  return converted;
}

// What dispositions.h changes; mask and restorer stay.
void take_over(KernelAction& action, const struct sigaction& changed) {
  action.handler = changed.sa_handler;
  action.flags = (action.flags & ~0xffffffffUL) | static_cast<unsigned>(changed.sa_flags);
}

long system_call(int signal, const void* wanted, void* old, std::size_t mask_bytes) {
  return os::raw_syscall(SYS_rt_sigaction, signal, reinterpret_cast<long>(wanted), reinterpret_cast<long>(old),
                         static_cast<long>(mask_bytes));
}

// A bad pointer is the kernel's to refuse.
bool can_read(const void* action) {
  const auto begin = reinterpret_cast<std::uintptr_t>(action);
  return os::is_readable(AppAddr(round_down(begin, 4))) &&
         os::is_readable(AppAddr(round_down(begin + sizeof(KernelAction) - 1, 4)));
}

// mov $13, %eax; syscall
constexpr std::uint8_t kCallInstructions[] = {0xb8, 0x0d, 0, 0, 0, 0x0f, 0x05};
constexpr std::uint8_t kCallNear = 0xe8;
constexpr std::uint8_t kNopOfTwo[] = {0x66, 0x90};
// More than the function has in any libc known.
constexpr std::size_t kLibcSigactionBytes = 1024;

}  // namespace

bool take_libc_call() {
  const auto function = reinterpret_cast<std::uintptr_t>(PENUMBRA_NEXT("__libc_sigaction"));
  if (function == 0) return false;
  std::uintptr_t at = function;
  while (raw_compare(reinterpret_cast<const void*>(at), kCallInstructions, sizeof kCallInstructions) != 0) {
    if (++at == function + kLibcSigactionBytes) return false;
  }
  const auto distance =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(&penumbra_rt_sigaction_site) - (at + 5));
  if (distance != static_cast<std::int32_t>(distance)) return false;
  const AppAddr begin(round_down(at, kPageSize));
  const std::size_t bytes = round_up(at + sizeof kCallInstructions, kPageSize) - begin.value;
  if (!os::protect(begin, bytes, PROT_READ | PROT_WRITE | PROT_EXEC).ok()) return false;
  auto* const code = reinterpret_cast<volatile std::uint8_t*>(at);
  code[0] = kCallNear;
  for (unsigned n = 0; n < 4; ++n) code[1 + n] = static_cast<std::uint8_t>(distance >> (8 * n));
  for (unsigned n = 0; n < sizeof kNopOfTwo; ++n) code[5 + n] = kNopOfTwo[n];
  os::protect(begin, bytes, PROT_READ | PROT_EXEC).ignore();
  return true;
}

long on_rt_sigaction(int signal, const void* wanted, void* old, std::size_t mask_bytes) {
  if (!is_watching() || !is_covered(signal) || mask_bytes != sizeof(os::SignalSet) ||
      (wanted != nullptr && !can_read(wanted))) {
    return system_call(signal, wanted, old, mask_bytes);
  }
  KernelAction held{};
  if (wanted != nullptr) {
    held = *static_cast<const KernelAction*>(wanted);
    take_over(held, to_kernel(signal, to_libc(held)));
  }
  const long result = system_call(signal, wanted != nullptr ? &held : nullptr, old, mask_bytes);
  if (result == 0 && old != nullptr) {
    auto& shown = *static_cast<KernelAction*>(old);
    const struct sigaction before = to_program(signal, to_libc(shown));
    // The default that a process starts with has neither flags nor a mask.
    if (before.sa_handler == SIG_DFL && before.sa_flags == 0 && shown.handler != SIG_DFL) shown = {};
    take_over(shown, before);
  }
  return result;
}

}  // namespace penumbra::signals

long penumbra_on_rt_sigaction(int signal, const void* wanted, void* old, std::size_t mask_bytes) {
  return penumbra::signals::on_rt_sigaction(signal, wanted, old, mask_bytes);
}
