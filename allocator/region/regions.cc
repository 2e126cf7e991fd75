#include "allocator/region/regions.h"

#include <errno.h>

#include <algorithm>

#include "allocator/region/process_regions.h"
#include "allocator/region/region_allocator.h"
#include "allocator/region/stack_pool.h"
#include "shadow/address_map.h"
#include "shadow/check.h"

namespace penumbra::region {
namespace {

AppAddr first_unpopulated(AppAddr begin, AppAddr end) {
  return g_process_regions.shadow().units().first_unpopulated(begin, end);
}

}  // namespace

constinit RegionAllocator<LazyShadow> g_process_regions;

bool init(const Options& options) {
  if (!shadow::is_reserved()) {
    errno = ENOMEM;
    return false;
  }
  Config config = Config::from(options);
  // More than this could have no shadow.
  if (shadow::is_paged()) config.span_bytes = std::min(config.span_bytes, shadow::paged_app_bytes());
  const os::Result made = g_process_regions.init(config);
  if (!made.ok()) {
    errno = made.error();
    return false;
  }
  shadow::set_span({g_process_regions.span().begin, g_process_regions.span().end, &first_unpopulated,
                    g_process_regions.shadow().units().words()});
  return true;
}

bool is_initialized() {
  return g_process_regions.is_initialized();
}

bool owns(AppAddr a) {
  return g_process_regions.owns(a);
}

AppAddr allocate(const Request& request) {
  return g_process_regions.allocate(request);
}

FreeVerdict free(AppAddr begin, StackId stack) {
  return g_process_regions.free(begin, stack);
}

std::size_t requested_bytes(AppAddr begin) {
  return g_process_regions.requested_bytes(begin);
}

bool describe(AppAddr a, AreaInfo& info) {
  return g_process_regions.describe(a, info);
}

bool populate_arena(AppAddr begin, std::size_t bytes) {
  return g_process_regions.shadow().units().ensure_ready(begin, bytes, shadow::ShadowTag::kHeapNeverAllocated);
}

Stats stats() {
  return g_process_regions.stats();
}

void purge_all() {
  g_process_stacks.trim();
  g_process_regions.purge_all();
}

void hold_worker() {
  if (is_initialized()) g_process_regions.hold_worker();
}

void resume_worker() {
  if (is_initialized()) g_process_regions.resume_worker();
}

void fork_prepare() {
  g_process_regions.fork_prepare();
}

void fork_parent() {
  g_process_regions.fork_parent();
}

void fork_child() {
  g_process_regions.fork_child();
}

void validate() {
  g_process_stacks.validate();
  g_process_regions.validate();
}

}  // namespace penumbra::region
