// The region allocator as a subject, with any shadow policy: the same calls that the C API makes, without the
// stacks.
//
// zone: hosted
#pragma once

#include "allocator/region/map_ram.h"
#include "allocator/region/page_pool.h"
#include "allocator/region/per_cpu.h"
#include "allocator/region/rcu_frees.h"
#include "allocator/region/region_allocator.h"
#include "allocator/region/vmap.h"
#include "bench/vmalloc/quiescent_rcu.h"
#include "bench/vmalloc/suite.h"

#include <cstddef>

namespace penumbra::bench::vmalloc {

template <class Shadow>
class RegionSubject {
 public:
  using Regions = region::RegionAllocator<Shadow>;
  using Page = region::Page;
  static constexpr unsigned kTestMask = kAllTests;

  // One subject of a type in a process: the provider's callbacks find it by type. Fails as Regions::init()
  // does.
  os::Result init(const region::Config& config) {
    const os::Result made = regions_.init(config);
    if (!made.ok()) return made;
    self_ = this;
    region::rcu_init({free_object, object_of});
    region::rcu_set_provider({quiescent_rcu::call_rcu, quiescent_rcu::synchronize_rcu});
    return made;
  }

  void* vmalloc(std::size_t bytes) { return take({.bytes = bytes}); }

  void* vmalloc_huge(std::size_t bytes) { return take({.bytes = bytes, .huge = true}); }

  void* vmalloc_aligned(std::size_t bytes, std::size_t alignment) {
    return take({.bytes = bytes, .alignment = alignment});
  }

  void* vzalloc_aligned(std::size_t bytes, std::size_t alignment) {
    return take({.bytes = bytes, .alignment = alignment, .zero = true});
  }

  void vfree(void* block, std::size_t) {
    if (block != nullptr) regions_.free(AppAddr(block), kNoStack);
  }

  void* vrealloc(void* block, std::size_t bytes) {
    const AppAddr begin(block);
    std::size_t old = 0;
    if (regions_.resize(begin, bytes, kNoStack, region::AreaKind::kVmalloc, old) == region::ResizeVerdict::kResized) {
      return block;
    }
    void* const moved = vmalloc(bytes);
    if (moved == nullptr) return nullptr;
    raw_copy(moved, block, std::min(old, bytes));
    regions_.free(begin, kNoStack);
    return moved;
  }

  bool kvfree_rcu(void* object) { return region::rcu_free_later(AppAddr(object)) == 0; }

  bool kvfree_rcu(void*, void* head) { return region::rcu_free_later_by_head(head) == 0; }

  void rcu_barrier() { quiescent_rcu::barrier(); }

  void* alloc_percpu(std::size_t bytes, std::size_t alignment) {
    return per_cpu_.allocate(bytes, alignment, kNoStack).template ptr<void>();
  }

  void free_percpu(void* object) {
    if (object != nullptr) per_cpu_.free(AppAddr(object));
  }

  Page* alloc_page() { return pages_.allocate(0); }

  void free_page(Page* page) { pages_.free(page, 0); }

  void* vm_map_ram(Page** pages, unsigned count) { return map_ram_.map(pages, count, kNoStack).template ptr<void>(); }

  void vm_unmap_ram(void* mapped, unsigned count) { map_ram_.unmap(AppAddr(mapped), count, kNoStack); }

 private:
  void* take(const region::Request& request) { return regions_.allocate(request).template ptr<void>(); }

  static void free_object(AppAddr object) { self_->regions_.free(object, kNoStack); }

  static AppAddr object_of(AppAddr inside) {
    region::AreaInfo info;
    return self_->regions_.describe(inside, info) ? info.begin : AppAddr();
  }

  inline static RegionSubject* self_ = nullptr;

  Regions regions_;
  region::PagePool<Regions> pages_{regions_};
  region::VmapAreas<Regions> vmaps_{regions_, pages_};
  region::MapRam<Regions> map_ram_{regions_, pages_, vmaps_};
  region::PerCpuAreas<Regions> per_cpu_{regions_};
};

}  // namespace penumbra::bench::vmalloc
