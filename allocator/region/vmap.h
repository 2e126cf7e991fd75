// vmap(): pages of the pool at adjacent addresses, in an area of their own with a guard behind.
//
// The pages keep their own addresses as well; what is written through one address is read through the other.
// Pages and mapping are independent of each other, as in the kernel: the caller frees both.
//
// Unmapping is a free: poison at once, and the purge takes the mapping down together with other areas. Until
// then a stale pointer still reaches the pages, and only a check sees it; the kernel leaves its TLB stale for
// as long.
//
// zone: nomalloc
#pragma once

#include "allocator/region/page_pool.h"
#include "allocator/region/regions.h"

#include <cerrno>
#include <cstddef>

namespace penumbra::region {

// Maps pages[0..count) at `at`, one alias for each run of adjacent pages. 0 or an errno; EINVAL for what is
// no page.
template <class Regions>
int alias_pages(PagePool<Regions>& pool, AppAddr at, Page* const* pages, std::size_t count) {
  for (std::size_t first = 0; first < count;) {
    const AppAddr own = pool.address(pages[first]);
    if (own.is_null()) return EINVAL;
    std::size_t run = 1;
    while (first + run < count && pool.address(pages[first + run]) == own + run * kPageSize &&
           pool.are_adjacent(pages[first + run - 1], pages[first + run])) {
      ++run;
    }
    const os::Result mapped = os::alias(own, at + first * kPageSize, run * kPageSize);
    if (!mapped.ok()) return mapped.error();
    first += run;
  }
  return 0;
}

template <class Regions>
class VmapAreas {
 public:
  constexpr VmapAreas(Regions& regions, PagePool<Regions>& pool) : regions_(regions), pool_(pool) {}

  // Null with EINVAL (no pages, or one that is none) or ENOMEM.
  AppAddr map(Page* const* pages, std::size_t count, StackId stack) {
    if (count == 0 || count > kUserAddressEnd / kPageSize) {
      errno = EINVAL;
      return AppAddr();
    }
    Request request;
    request.bytes = count * kPageSize;
    request.kind = AreaKind::kVmap;
    request.stack = stack;
    const AppAddr begin = regions_.allocate(request);
    if (begin.is_null()) return begin;
    const int error = alias_pages(pool_, begin, pages, count);
    if (error == 0) return begin;
    regions_.free(begin, stack);
    errno = error;
    return AppAddr();
  }

  FreeVerdict unmap(AppAddr begin, StackId stack) { return regions_.free(begin, stack, AreaKind::kVmap); }

 private:
  Regions& regions_;
  PagePool<Regions>& pool_;
};

}  // namespace penumbra::region
