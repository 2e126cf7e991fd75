#include "allocator/region/regions.h"

#include <errno.h>

#include "allocator/region/region_allocator.h"
#include "allocator/region/process_regions.h"
#include "shadow/address_map.h"
#include "shadow/check.h"

namespace penumbra::region {
namespace {

constinit RegionAllocator<LazyShadow> g_regions;

AppAddr first_unpopulated(AppAddr begin, AppAddr end) {
  return g_regions.shadow().units().first_unpopulated(begin, end);
}

}  // namespace

RegionAllocator<LazyShadow>& process_regions() { return g_regions; }

bool init(const Options& options) {
  if (!shadow::is_reserved()) {
    errno = ENOMEM;
    return false;
  }
  const os::Result made = g_regions.init(Config::from(options));
  if (!made.ok()) {
    errno = made.error();
    return false;
  }
  shadow::set_span({g_regions.span().begin, g_regions.span().end, &first_unpopulated});
  return true;
}

bool is_initialized() { return g_regions.is_initialized(); }

bool owns(AppAddr a) { return g_regions.owns(a); }

AppAddr allocate(const Request& request) { return g_regions.allocate(request); }

FreeVerdict free(AppAddr begin, StackId stack) { return g_regions.free(begin, stack); }

std::size_t requested_bytes(AppAddr begin) { return g_regions.requested_bytes(begin); }

bool describe(AppAddr a, AreaInfo& info) { return g_regions.describe(a, info); }

bool populate_arena(AppAddr begin, std::size_t bytes) {
  return g_regions.shadow().units().ensure_ready(begin, bytes, shadow::ShadowTag::kHeapNeverAllocated);
}

Stats stats() { return g_regions.stats(); }

void purge_all() { g_regions.purge_all(); }

void fork_prepare() { g_regions.fork_prepare(); }

void fork_parent() { g_regions.fork_parent(); }

void fork_child() { g_regions.fork_child(); }

void validate() { g_regions.validate(); }

}  // namespace penumbra::region
