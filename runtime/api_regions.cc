#include "runtime/api_regions.h"

#include "runtime/base/options.h"
#include "runtime/stacks/stacks.h"

#include <errno.h>

#include <algorithm>

namespace penumbra::runtime {
namespace {

constinit Mutex g_lock;

}  // namespace

constinit region::RegionAllocator<region::NoShadow> g_plain_regions;

region::RegionAllocator<region::NoShadow>* plain_regions() {
  const LockGuard guard(g_lock);
  if (!g_plain_regions.is_initialized()) {
    const os::Result made = g_plain_regions.init(region::Config::from(process_options()));
    if (!made.ok()) {
      errno = made.error();
      return nullptr;
    }
  }
  return &g_plain_regions;
}

StackId record_stack(const CodeContext& caller) {
  return stacks::record(caller, static_cast<std::size_t>(std::max<std::int64_t>(process_options().stack_depth, 0)));
}

void raise_bad_free(region::FreeVerdict verdict, AppAddr object, const CodeContext& context, const char* function) {
  Fault fault;
  fault.kind = verdict == region::FreeVerdict::kDoubleFree ? FaultKind::kDoubleFree : FaultKind::kInvalidFree;
  fault.is_write = true;
  fault.freed_by = AllocatorName::kVmalloc;
  fault.addr = object;
  fault.context = context;
  fault.function = function;
  raise_fault(fault);
}

}  // namespace penumbra::runtime
