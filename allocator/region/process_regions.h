// The process's allocator itself, for those above the facade that need more than it offers (the C API).
//
// zone: nomalloc
#pragma once

#include "allocator/region/region_allocator.h"

namespace penumbra::region {

RegionAllocator<LazyShadow>& process_regions();

}  // namespace penumbra::region
