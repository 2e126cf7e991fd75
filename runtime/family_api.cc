// The C API beyond plain areas (include/penumbra/penumbra.h): pages and their mappings, per-CPU areas,
// kvfree_rcu.
//
// zone: nomalloc
#include "runtime/family_api.h"

#include "allocator/heap/heap.h"
#include "allocator/region/map_ram.h"
#include "allocator/region/page_pool.h"
#include "allocator/region/per_cpu.h"
#include "allocator/region/rcu_frees.h"
#include "allocator/region/vmap.h"
#include "penumbra/penumbra.h"
#include "runtime/api_regions.h"
#include "runtime/base/export.h"

#include <errno.h>
#include <stdlib.h>

namespace penumbra::runtime {
namespace {

using region::AreaInfo;
using region::AreaKind;
using region::AreaState;
using region::FreeVerdict;
using region::LazyShadow;
using region::NoShadow;
using region::Page;
using region::RegionAllocator;

template <class Regions>
struct Family {
  constexpr explicit Family(Regions& regions)
      : pages(regions), vmaps(regions, pages), map_ram(regions, pages, vmaps), per_cpu(regions) {}

  void fork_prepare() {
    map_ram.fork_prepare();
    per_cpu.fork_prepare();
    pages.fork_prepare();
  }

  void fork_parent() {
    pages.fork_parent();
    per_cpu.fork_parent();
    map_ram.fork_parent();
  }

  void fork_child() {
    pages.fork_child();
    per_cpu.fork_child();
    map_ram.fork_child();
  }

  region::PagePool<Regions> pages;
  region::VmapAreas<Regions> vmaps;
  region::MapRam<Regions> map_ram;
  region::PerCpuAreas<Regions> per_cpu;
};

constinit Family<RegionAllocator<LazyShadow>> g_family{region::g_process_regions};
constinit Family<RegionAllocator<NoShadow>> g_plain_family{g_plain_regions};

Family<RegionAllocator<LazyShadow>>& family_of(RegionAllocator<LazyShadow>&) {
  return g_family;
}

Family<RegionAllocator<NoShadow>>& family_of(RegionAllocator<NoShadow>&) {
  return g_plain_family;
}

template <class Use, class Result>
Result with_family(Use use, Result otherwise) {
  return with_regions([&](auto& regions) { return use(family_of(regions)); }, otherwise);
}

// The handles of the C API are the pool's.
Page* pool_page(penumbra_page* page) {
  return reinterpret_cast<Page*>(page);
}

const Page* pool_page(const penumbra_page* page) {
  return reinterpret_cast<const Page*>(page);
}

Page* const* pool_pages(penumbra_page* const* pages) {
  return reinterpret_cast<Page* const*>(pages);
}

penumbra_page* api_page(Page* page) {
  return reinterpret_cast<penumbra_page*>(page);
}

void judge(FreeVerdict verdict, const void* object, const CodeContext& caller, const char* function) {
  if (verdict != FreeVerdict::kFreed) raise_bad_free(verdict, AppAddr(object), caller, function);
}

// What an address belongs to, as far as kvfree is concerned: an area of penumbra_vmalloc's or a heap object.
struct Found {
  AppAddr begin;
  bool is_live = false;
  bool was_freed = false;
};

Found find_object(AppAddr inside) {
  if (!with_regions([&](auto& regions) { return regions.owns(inside); }, false)) return {};
  AreaInfo area;
  // The look-up only tries; whoever is in its way moves on.
  while (!with_regions([&](auto& regions) { return regions.describe(inside, area); }, true)) __builtin_ia32_pause();
  if (area.kind == AreaKind::kVmalloc && area.state != AreaState::kNever) {
    return {area.begin, area.state == AreaState::kLive, area.state != AreaState::kLive};
  }
  heap::BlockInfo block;
  if (!heap::owns(inside) || !heap::describe(inside, block) || block.state == heap::BlockState::kNone) return {};
  return {block.begin, block.state == heap::BlockState::kLive, block.state != heap::BlockState::kLive};
}

// On the provider's thread, or on the caller's when it had to wait.
void free_object(AppAddr object) {
  const Found found = find_object(object);
  const bool is_area = with_regions([&](auto& regions) { return regions.requested_bytes(object) != 0; }, false);
  if (!is_area && found.begin == object && found.is_live) {
    ::free(object.ptr<void>());  // a heap object
    return;
  }
  const CodeContext caller = PENUMBRA_CALLER();
  const FreeVerdict verdict =
      with_regions([&](auto& regions) { return regions.free(object, record_stack(caller), AreaKind::kVmalloc); },
                   FreeVerdict::kForeign);
  judge(verdict, object.ptr<void>(), caller, "penumbra_kvfree_rcu");
}

AppAddr object_of_head(AppAddr head) {
  return find_object(head).begin;
}

int kvfree_later(void* object, void* head, const CodeContext& caller) {
  if (object == nullptr) return 0;
  if (!region::rcu_has_provider()) return ENOSYS;
  const AppAddr begin(object);
  const Found found = find_object(begin);
  if (found.begin != begin || !found.is_live) {
    raise_bad_free(found.was_freed ? FreeVerdict::kDoubleFree : FreeVerdict::kForeign, begin, caller,
                   "penumbra_kvfree_rcu");
    return EINVAL;
  }
  if (head == nullptr) return region::rcu_free_later(begin);
  return find_object(AppAddr(head)).begin == begin ? region::rcu_free_later_by_head(head) : EINVAL;
}

}  // namespace

void family_fork_prepare() {
  region::rcu_fork_prepare();
  g_family.fork_prepare();
  g_plain_family.fork_prepare();
}

void family_fork_parent() {
  g_plain_family.fork_parent();
  g_family.fork_parent();
  region::rcu_fork_parent();
}

void family_fork_child() {
  g_plain_family.fork_child();
  g_family.fork_child();
  region::rcu_fork_child();
}

void trim_family() {
  with_family(
      [](auto& family) {
        family.map_ram.trim();
        family.per_cpu.trim();
        family.pages.trim();
        return true;
      },
      false);
}

}  // namespace penumbra::runtime

namespace runtime = penumbra::runtime;
using penumbra::AppAddr;
using penumbra::CodeContext;
using penumbra::kPageSize;
using penumbra::StackId;
using penumbra::region::FreeVerdict;

PENUMBRA_EXPORT penumbra_page* penumbra_alloc_pages(unsigned order) {
  return runtime::with_family([&](auto& family) { return runtime::api_page(family.pages.allocate(order)); },
                              static_cast<penumbra_page*>(nullptr));
}

PENUMBRA_EXPORT void penumbra_free_pages(penumbra_page* page, unsigned order) {
  if (page == nullptr) return;
  const CodeContext caller = PENUMBRA_CALLER();
  // The report names the memory, not the handle.
  const void* const memory = penumbra_page_address(page);
  const FreeVerdict verdict = runtime::with_family(
      [&](auto& family) { return family.pages.free(runtime::pool_page(page), order); }, FreeVerdict::kForeign);
  runtime::judge(verdict, memory != nullptr ? memory : page, caller, "penumbra_free_pages");
}

PENUMBRA_EXPORT void* penumbra_page_address(const penumbra_page* page) {
  return runtime::with_family(
      [&](auto& family) { return family.pages.address(runtime::pool_page(page)).template ptr<void>(); },
      static_cast<void*>(nullptr));
}

PENUMBRA_EXPORT penumbra_page* penumbra_virt_to_page(const void* address) {
  return runtime::with_family([&](auto& family) { return runtime::api_page(family.pages.page_at(AppAddr(address))); },
                              static_cast<penumbra_page*>(nullptr));
}

PENUMBRA_EXPORT void* penumbra_vmap(penumbra_page* const* pages, unsigned count) {
  const StackId stack = runtime::record_stack(PENUMBRA_CALLER());
  return runtime::with_family(
      [&](auto& family) { return family.vmaps.map(runtime::pool_pages(pages), count, stack).template ptr<void>(); },
      static_cast<void*>(nullptr));
}

PENUMBRA_EXPORT void penumbra_vunmap(const void* mapping) {
  if (mapping == nullptr) return;
  const CodeContext caller = PENUMBRA_CALLER();
  const FreeVerdict verdict = runtime::with_family(
      [&](auto& family) { return family.vmaps.unmap(AppAddr(mapping), runtime::record_stack(caller)); },
      FreeVerdict::kForeign);
  runtime::judge(verdict, mapping, caller, "penumbra_vunmap");
}

PENUMBRA_EXPORT void* penumbra_vm_map_ram(penumbra_page* const* pages, unsigned count) {
  const StackId stack = runtime::record_stack(PENUMBRA_CALLER());
  return runtime::with_family(
      [&](auto& family) { return family.map_ram.map(runtime::pool_pages(pages), count, stack).template ptr<void>(); },
      static_cast<void*>(nullptr));
}

PENUMBRA_EXPORT void penumbra_vm_unmap_ram(const void* mapping, unsigned count) {
  if (mapping == nullptr) return;
  const CodeContext caller = PENUMBRA_CALLER();
  const FreeVerdict verdict = runtime::with_family(
      [&](auto& family) { return family.map_ram.unmap(AppAddr(mapping), count, runtime::record_stack(caller)); },
      FreeVerdict::kForeign);
  runtime::judge(verdict, mapping, caller, "penumbra_vm_unmap_ram");
}

PENUMBRA_EXPORT void* penumbra_alloc_percpu(size_t size, size_t alignment) {
  const StackId stack = runtime::record_stack(PENUMBRA_CALLER());
  return runtime::with_family(
      [&](auto& family) { return family.per_cpu.allocate(size, alignment, stack).template ptr<void>(); },
      static_cast<void*>(nullptr));
}

PENUMBRA_EXPORT void penumbra_free_percpu(void* object) {
  if (object == nullptr) return;
  const CodeContext caller = PENUMBRA_CALLER();
  const FreeVerdict verdict =
      runtime::with_family([&](auto& family) { return family.per_cpu.free(AppAddr(object)); }, FreeVerdict::kForeign);
  runtime::judge(verdict, object, caller, "penumbra_free_percpu");
}

PENUMBRA_EXPORT unsigned penumbra_percpu_cpus(void) {
  return penumbra::os::possible_cpus();
}

PENUMBRA_EXPORT void* penumbra_per_cpu_ptr(void* object, unsigned cpu) {
  return static_cast<char*>(object) + cpu * penumbra::region::kPerCpuStride;
}

PENUMBRA_EXPORT void* penumbra_this_cpu_ptr(void* object) {
  return penumbra_per_cpu_ptr(object, penumbra::os::current_cpu());
}

PENUMBRA_EXPORT int penumbra_set_rcu(void (*call_rcu)(void* head, void (*function)(void* head)),
                                     void (*synchronize_rcu)(void)) {
  if ((call_rcu == nullptr) != (synchronize_rcu == nullptr)) return EINVAL;
  penumbra::region::rcu_init({runtime::free_object, runtime::object_of_head});
  penumbra::region::rcu_set_provider({call_rcu, synchronize_rcu});
  return 0;
}

PENUMBRA_EXPORT int penumbra_kvfree_rcu(void* object) {
  return runtime::kvfree_later(object, nullptr, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT int penumbra_kvfree_rcu_head(void* object, void* head) {
  return head == nullptr ? EINVAL : runtime::kvfree_later(object, head, PENUMBRA_CALLER());
}
