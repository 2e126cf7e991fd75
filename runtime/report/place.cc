#include "runtime/report/place.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>

#include <cstddef>

#include "runtime/base/address.h"

#pragma weak _dl_find_object

namespace penumbra::report {
namespace {

// Deep enough for the callbacks of qsort and the layers of stdio; beyond, the place is where the walk ended.
constexpr std::size_t kMostFrames = 32;

constinit AppRange g_libc;

bool is_in_libc(std::uintptr_t pc) {
  return g_libc.contains(AppAddr(pc));
}

}  // namespace

void init_places() {
  dl_find_object found;
  if (&_dl_find_object == nullptr) return;
  if (_dl_find_object(reinterpret_cast<void*>(&gnu_get_libc_version), &found) != 0) return;
  g_libc = {AppAddr(found.dlfo_map_start), AppAddr(found.dlfo_map_end)};
}

FaultPlace place_of(const Sources& sources, const Fault& fault) {
  const std::uint32_t direction = fault.is_write ? 2 : 1;
  // An entry point found it: the place is its caller, or whose tail call of it that was.
  if (!is_in_libc(fault.context.pc)) return {fault.context.pc, fault.function != nullptr ? direction : 0};
  std::uintptr_t frames[kMostFrames];
  std::size_t count = 0;
  if (fault.ucontext != nullptr && sources.unwind_ucontext != nullptr) {
    count = sources.unwind_ucontext(fault.ucontext, frames, kMostFrames);
  } else if (sources.unwind != nullptr) {
    count = sources.unwind(fault.context, frames, kMostFrames);
  }
  for (std::size_t n = 0; n < count; ++n) {
    if (!is_in_libc(frames[n])) return {frames[n], direction};
  }
  return {fault.context.pc, direction};
}

}  // namespace penumbra::report
