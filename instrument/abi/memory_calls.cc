// __asan_memcpy, __asan_memmove, __asan_memset: what clang emits under -asan-kernel-mem-intrinsic-prefix.
//
// The whole range is judged before a byte moves; after a report the call is carried out, as KASAN does.
//
// zone: signal-safe
#include "instrument/abi/abi.h"
#include "runtime/base/raw_memory.h"
#include "shadow/check.h"

namespace penumbra::abi {
namespace {

void check_range(const void* begin, std::size_t bytes, bool is_write, const char* function,
                 const CodeContext& context) {
  const AppAddr addr(begin);
  const AppAddr bad = shadow::first_bad(addr, bytes);
  if (bad == shadow::kNoBadByte) [[likely]]
    return;
  Fault fault;
  fault.kind = addr.value + bytes < addr.value ? FaultKind::kWrappedAccess : FaultKind::kBadAccess;
  fault.is_write = is_write;
  fault.addr = addr;
  fault.size = bytes;
  fault.bad = bad;
  fault.context = context;
  fault.function = function;
  report(fault, false);
}

}  // namespace

extern "C" {

__attribute__((visibility("hidden"))) void* penumbra_abi_memcpy(void* to, const void* from, std::size_t bytes) {
  const CodeContext context = PENUMBRA_CALLER();
  check_range(from, bytes, false, "memcpy", context);
  check_range(to, bytes, true, "memcpy", context);
  return raw_copy(to, from, bytes);
}

__attribute__((visibility("hidden"))) void* penumbra_abi_memmove(void* to, const void* from, std::size_t bytes) {
  const CodeContext context = PENUMBRA_CALLER();
  check_range(from, bytes, false, "memmove", context);
  check_range(to, bytes, true, "memmove", context);
  return raw_move(to, from, bytes);
}

__attribute__((visibility("hidden"))) void* penumbra_abi_memset(void* to, int value, std::size_t bytes) {
  check_range(to, bytes, true, "memset", PENUMBRA_CALLER());
  return raw_set(to, value, bytes);
}

}  // extern "C"

}  // namespace penumbra::abi
