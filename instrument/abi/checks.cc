// The exact half of the outline checks, and what an inline check reports. Reached by tail jumps (checks_x86_64.S), so
// the caller of these functions is the checked code itself.
//
// zone: signal-safe
#include "shadow/check.h"

#include <ucontext.h>

#include "instrument/abi/abi.h"
#include "instrument/abi/compiled.h"
#include "instrument/abi/entry_macros_x86_64.h"
#include "shadow/encoding.h"

namespace penumbra::abi {
namespace {

static_assert(PENUMBRA_ABI_SHADOW_OFFSET == shadow::kShadowOffset);
static_assert(PENUMBRA_ABI_GRANULE_SHIFT == shadow::kGranuleShift);
static_assert(PENUMBRA_ABI_GRANULE_MASK == shadow::kGranuleSize - 1);

enum Kind : unsigned { kWrite = 1, kAborts = 2 };  // the bits of edx in checks_x86_64.S

bool wraps(AppAddr addr, std::size_t bytes) {
  return addr.value + bytes < addr.value;
}

void report_access(AppAddr addr, std::size_t bytes, AppAddr bad, unsigned kind, const CodeContext& context) {
  Fault fault;
  fault.kind = wraps(addr, bytes) ? FaultKind::kWrappedAccess : FaultKind::kBadAccess;
  fault.is_write = (kind & kWrite) != 0;
  fault.addr = addr;
  fault.size = bytes;
  fault.bad = bad;
  fault.context = context;
  report(fault, (kind & kAborts) != 0);
}

}  // namespace

extern "C" {

extern const char penumbra_abi_checks_begin[] __attribute__((visibility("hidden")));
extern const char penumbra_abi_checks_end[] __attribute__((visibility("hidden")));

__attribute__((visibility("hidden"))) void penumbra_abi_check(AppAddr addr, std::size_t bytes, unsigned kind) {
  const AppAddr bad = shadow::first_bad(addr, bytes);
  if (bad == shadow::kNoBadByte) [[likely]]
    return;
  report_access(addr, bytes, bad, kind, PENUMBRA_CALLER());
}

// The shadow bytes allow it; but the access lies in the span, or just before it.
__attribute__((visibility("hidden"))) void penumbra_abi_check_unit(AppAddr addr, std::size_t bytes, unsigned kind) {
  if (!shadow::meets_span(addr, bytes) || shadow::is_populated(addr, bytes)) [[likely]]
    return;
  report_access(addr, bytes, shadow::first_bad(addr, bytes), kind, PENUMBRA_CALLER());
}

__attribute__((visibility("hidden"))) void penumbra_abi_report(AppAddr addr, std::size_t bytes, unsigned kind) {
  note_compiled_code();
  const AppAddr bad = shadow::first_bad(addr, bytes);
  // The compiler's check saw a bad byte; where another thread has changed that since, the first byte stands for it.
  report_access(addr, bytes, bad == shadow::kNoBadByte ? addr : bad, kind, PENUMBRA_CALLER());
}

}  // extern "C"

bool skip_faulting_check(void* ucontext) {
  greg_t* const registers = static_cast<ucontext_t*>(ucontext)->uc_mcontext.gregs;
  const auto pc = static_cast<std::uintptr_t>(registers[REG_RIP]);
  if (pc < reinterpret_cast<std::uintptr_t>(penumbra_abi_checks_begin) ||
      pc >= reinterpret_cast<std::uintptr_t>(penumbra_abi_checks_end)) {
    return false;
  }
  // No check has moved the stack pointer: what follows is its `ret`.
  registers[REG_RIP] = *AppAddr(static_cast<std::uintptr_t>(registers[REG_RSP])).ptr<const greg_t>();
  registers[REG_RSP] += sizeof(void*);
  return true;
}

}  // namespace penumbra::abi
