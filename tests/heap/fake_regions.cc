// The region facade, reduced to what the heap's own tests need: a bump allocator over a reserved span, with the shadow
// that the real one would show, and a switch that makes it fail. Each area keeps its place for ever.
#include "tests/heap/fake_regions.h"

#include <errno.h>
#include <sys/mman.h>

#include <map>
#include <mutex>

#include "allocator/region/regions.h"
#include "runtime/base/check.h"
#include "runtime/base/os_linux.h"
#include "shadow/check.h"
#include "shadow/poison.h"

namespace penumbra::region {
namespace {

constexpr std::size_t kSpanBytes = std::size_t{64} << 30;

struct Area {
  Request request;
  std::size_t area_bytes;
  AreaState state;
  StackId freed;
};

std::mutex g_lock;
AppAddr g_begin;
AppAddr g_next;
std::map<std::uintptr_t, Area> g_areas;
bool g_fails = false;

}  // namespace

void set_fake_failure(bool fails) { g_fails = fails; }

bool init(const Options&) {
  if (!g_begin.is_null()) return true;
  const os::Result span = os::reserve(AppAddr(), kSpanBytes);
  PENUMBRA_CHECK(span.ok());
  g_begin = g_next = AppAddr(round_up(span.address().value, shadow::kUnitSize));
  shadow::set_span({g_begin, g_begin + (kSpanBytes - shadow::kUnitSize),
                    [](AppAddr, AppAddr) { return shadow::kNoBadByte; }});
  return true;
}

bool is_initialized() { return !g_begin.is_null(); }

bool owns(AppAddr a) { return a >= shadow::span().begin && a < shadow::span().end; }

AppAddr allocate(const Request& request) {
  const std::lock_guard guard(g_lock);
  const std::size_t bytes = round_up(request.bytes, kPageSize);
  const AppAddr begin(round_up(g_next.value, request.alignment));
  if (g_fails || request.bytes > kSpanBytes || begin + bytes + kPageSize > shadow::span().end) {
    errno = ENOMEM;
    return AppAddr();
  }
  g_next = begin + bytes + kPageSize;
  if (request.kind != AreaKind::kArena) g_next = AppAddr(round_up(g_next.value, shadow::kUnitSize));
  PENUMBRA_CHECK(os::remap_fresh(begin, bytes).ok());
  if (request.kind != AreaKind::kArena) {
    shadow::unpoison_with_tail(begin, request.bytes, bytes, shadow::ShadowTag::kRegionTail);
    shadow::poison(begin + bytes, kPageSize, shadow::ShadowTag::kRegionGuard);
  }
  g_areas[begin.value] = {request, bytes, AreaState::kLive, kNoStack};
  return begin;
}

FreeVerdict free(AppAddr begin, StackId stack) {
  const std::lock_guard guard(g_lock);
  const auto found = g_areas.find(begin.value);
  if (found == g_areas.end()) return FreeVerdict::kForeign;
  Area& area = found->second;
  if (area.state != AreaState::kLive) return FreeVerdict::kDoubleFree;
  area.state = AreaState::kFreed;
  area.freed = stack;
  shadow::poison(begin, area.area_bytes, shadow::ShadowTag::kRegionFreed);
  return FreeVerdict::kFreed;
}

std::size_t requested_bytes(AppAddr begin) {
  const std::lock_guard guard(g_lock);
  const auto found = g_areas.find(begin.value);
  return found != g_areas.end() && found->second.state == AreaState::kLive ? found->second.request.bytes : 0;
}

bool describe(AppAddr a, AreaInfo& info) {
  const std::lock_guard guard(g_lock);
  auto found = g_areas.upper_bound(a.value);
  if (found == g_areas.begin()) return false;
  --found;
  const Area& area = found->second;
  if (a.value >= found->first + area.area_bytes + kPageSize) return false;
  info = AreaInfo();
  info.state = area.state;
  info.kind = area.request.kind;
  info.begin = AppAddr(found->first);
  info.requested = area.request.bytes;
  info.area_bytes = area.area_bytes;
  info.in_guard = a.value >= found->first + area.area_bytes;
  info.allocated = area.request.stack;
  info.freed = area.freed;
  return true;
}

}  // namespace penumbra::region
