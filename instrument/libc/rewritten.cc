#include "instrument/libc/rewritten.h"

#include "instrument/libc/entry.h"
#include "runtime/base/raw_memory.h"

// The linker's bounds of the section that PENUMBRA_LIBC_DECLARE fills.
extern "C" penumbra::libc::RealSlot __start_penumbra_real[] __attribute__((visibility("hidden")));
extern "C" penumbra::libc::RealSlot __stop_penumbra_real[] __attribute__((visibility("hidden")));

namespace penumbra::libc {
namespace {

// memcpy and memmove are one function inside libc. Calls that come to it there may overlap.
bool may_serve_libc(const char* name) {
  constexpr char kMemcpy[] = "memcpy";
  return raw_length(name) != sizeof kMemcpy - 1 || raw_compare(name, kMemcpy, sizeof kMemcpy - 1) != 0;
}

// libc has these answered by the kernel's vdso, which is nobody's to rewrite.
bool is_answered_by_vdso(const char* name) {
  for (const char* one : {"clock_gettime", "clock_getres", "gettimeofday", "time"}) {
    if (raw_length(name) == raw_length(one) && raw_compare(name, one, raw_length(one)) == 0) return true;
  }
  return false;
}

std::uintptr_t function_of(const RealSlot& slot) {
  return reinterpret_cast<std::uintptr_t>(slot.function);
}

}  // namespace

void use_rewritten(const RewrittenCode& code) {
  for (RealSlot* slot = __start_penumbra_real; slot != __stop_penumbra_real; ++slot) {
    if (slot->function == nullptr) continue;
    if (code.copy_of(function_of(*slot)) == 0) {
      slot->checks_itself = code.is_checked(function_of(*slot)) && !is_answered_by_vdso(slot->name);
    } else if (may_serve_libc(slot->name)) {
      // Several names of one function: the last one's entry point stays, they all check alike.
      code.redirect(function_of(*slot), reinterpret_cast<std::uintptr_t>(slot->own));
    }
  }
  for (RealSlot* slot = __start_penumbra_real; slot != __stop_penumbra_real; ++slot) {
    if (const std::uintptr_t copy = slot->function == nullptr ? 0 : code.copy_of(function_of(*slot))) {
      slot->function = reinterpret_cast<void*>(copy);
    }
  }
}

}  // namespace penumbra::libc
