// The process's allocator itself, for those above the facade that need more than it offers (the C API).
//
// zone: nomalloc
#pragma once

#include "allocator/region/region_allocator.h"

namespace penumbra::region {

// A name with a constant address, so that what stands on it can be constant-initialised too. init() brings it up.
extern RegionAllocator<LazyShadow> g_process_regions;

inline RegionAllocator<LazyShadow>& process_regions() {
  return g_process_regions;
}

}  // namespace penumbra::region
