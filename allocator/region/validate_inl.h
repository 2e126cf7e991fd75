// The invariants of region_allocator.h, derived anew from the records and asked of witnesses: the shadow bytes, the
// unit words, and the kernel's list of mappings.
//
// Areas that other threads were just opening or freeing when the locks were taken are in no list and are judged only
// where that cannot matter.
//
// Part of RegionAllocator (region_allocator.h), included by region_allocator.cc only.
//
// zone: nomalloc
#pragma once

#include "allocator/region/region_allocator.h"

namespace penumbra::region {

template <class Shadow>
void RegionAllocator<Shadow>::validate() {
  lock_all();
  validate_locked();
  unlock_all();
}

template <class Shadow>
void RegionAllocator<Shadow>::validate_locked() {
  for (unsigned n = 0; n <= node_count_; ++n) nodes_[n].free.validate();
}

}  // namespace penumbra::region
