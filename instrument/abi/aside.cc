// Whether the entry points work, wait or forward: the switches that the assembly reads, and the slots behind them.
//
// zone: nomalloc
#include "instrument/abi/abi.h"
#include "runtime/base/export.h"
#include "runtime/base/os_linux.h"
#include "shadow/address_map.h"
#include "shadow/check.h"
#include "shadow/encoding.h"

namespace {

// One exported name and where its next definition is; laid out by PENUMBRA_SLOT.
struct Slot {
  const char* name;
  void* next;
};
static_assert(sizeof(Slot) == 16);

}  // namespace

extern "C" {

// Addresses below this have a shadow that an outline check may read, whatever its size (up to 64 bytes); 0 before
// start(), while aside, and on the paged map.
__attribute__((visibility("hidden"))) constinit std::uint64_t penumbra_abi_checked_end = 0;
__attribute__((visibility("hidden"))) constinit std::uint8_t penumbra_abi_aside = 0;

// Accesses of up to 64 bytes at [low, low + reach) may touch the region span. Without a span
// these are the last 63 addresses of all, which have no shadow.
__attribute__((visibility("hidden"))) constinit std::uint64_t penumbra_abi_span_low = 0;
__attribute__((visibility("hidden"))) constinit std::uint64_t penumbra_abi_span_reach = 0;

// The linker's names for the ends of the section that PENUMBRA_SLOT fills.
extern Slot __start_penumbra_abi_slots[] __attribute__((visibility("hidden")));
extern Slot __stop_penumbra_abi_slots[] __attribute__((visibility("hidden")));

}  // extern "C"

namespace penumbra::abi {
namespace {

constinit Hooks g_hooks;

// Largest access that a fast path follows without asking where it ends.
constexpr std::size_t kLargestFastAccess = 64;

}  // namespace

void set_hooks(const Hooks& hooks) {
  g_hooks = hooks;
}

const Hooks& hooks() {
  return g_hooks;
}

void start() {
  if (!shadow::is_reserved()) return;
  const shadow::Span& span = shadow::span();
  penumbra_abi_span_low = span.begin.value - (kLargestFastAccess - 1);
  penumbra_abi_span_reach = span.end.value - penumbra_abi_span_low;
  // The fast paths load from the direct map; without it every check takes the exact way.
  penumbra_abi_checked_end = shadow::is_direct() ? kUserAddressEnd - kLargestFastAccess : 0;
}

void stand_aside() {
  penumbra_abi_checked_end = 0;
  for (Slot* slot = __start_penumbra_abi_slots; slot != __stop_penumbra_abi_slots; ++slot) {
    if (void* const next = PENUMBRA_NEXT(slot->name)) slot->next = next;
  }
  penumbra_abi_aside = 1;
}

bool is_aside() {
  return penumbra_abi_aside != 0;
}

void report(const Fault& fault, bool aborts) {
  raise_fault(fault);
  if (!aborts) return;
  if (g_hooks.end_process != nullptr) g_hooks.end_process();
  os::exit_process(1);
}

}  // namespace penumbra::abi
