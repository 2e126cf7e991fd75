// What the functions of the C API share: the allocator they work on, the stacks they record, the faults they
// raise.
//
// Where the process runs without shadow (no reservation, shadow=off, standing aside) they work on an
// allocator without shadow: guards still fault, nothing else is checked.
//
// zone: nomalloc
#pragma once

#include "allocator/region/process_regions.h"
#include "runtime/base/fault.h"
#include "runtime/init.h"

namespace penumbra::runtime {

// The allocator without shadow. Nothing but plain_regions() initialises it.
extern region::RegionAllocator<region::NoShadow> g_plain_regions;
// Null, with errno, while it cannot be had.
region::RegionAllocator<region::NoShadow>* plain_regions();

// Calls `use` with the allocator of this process; `otherwise` when there is none. A call before the
// constructor brings the process up itself.
template <class Use, class Result>
Result with_regions(Use use, Result otherwise) {
  if (region::is_initialized()) [[likely]]
    return use(region::process_regions());
  init(nullptr);
  if (region::is_initialized()) return use(region::process_regions());
  auto* const plain = plain_regions();
  return plain != nullptr ? use(*plain) : otherwise;
}

// The caller's stack, as deep as the options say.
StackId record_stack(const CodeContext& caller);

void raise_bad_free(region::FreeVerdict verdict, AppAddr object, const CodeContext& context, const char* function);

}  // namespace penumbra::runtime
