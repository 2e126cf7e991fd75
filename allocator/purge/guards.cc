#include "allocator/purge/guards.h"

#include <errno.h>
#include <sys/mman.h>

#include "runtime/base/config.h"
#include "shadow/encoding.h"

namespace penumbra::region {
namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;
// vm.max_map_count where it cannot be read (kernel default, include/linux/mm.h).
constexpr std::int64_t kDefaultMaxMaps = 65530;

std::int64_t max_map_count() {
  const os::Result fd = os::open_read("/proc/sys/vm/max_map_count");
  if (!fd.ok()) return kDefaultMaxMaps;
  char text[32];
  const os::Result got = os::read(static_cast<int>(fd.value()), text, sizeof text);
  os::close(static_cast<int>(fd.value())).ignore();
  std::int64_t value = 0;
  for (long i = 0; i < got.value() && text[i] >= '0' && text[i] <= '9'; ++i) value = value * 10 + (text[i] - '0');
  return value > 0 ? value : kDefaultMaxMaps;
}

bool markers_work(AppAddr probe) {
  if (!os::protect(probe, kPageSize, kReadWrite).ok()) return false;
  const bool works = os::advise(probe, kPageSize, os::kMadvGuardInstall).ok();
  os::decommit(probe, kPageSize).ignore();
  return works;
}

}  // namespace

void Guards::init(GuardKind wanted, AppAddr probe) {
  maps_budget_ = max_map_count() / 2;
  kind_ = wanted;
  if (wanted == GuardKind::kAuto || wanted == GuardKind::kMarker) {
    kind_ = markers_work(probe) ? GuardKind::kMarker : GuardKind::kMprotect;
  }
  const iovec range{probe.ptr<void>(), kPageSize};
  batches_ = os::process_advise(os::kPidfdSelf, &range, 1, MADV_DONTNEED).ok();
}

bool Guards::drop(AppAddr begin, std::size_t bytes) {
  const os::Result dropped = os::advise(begin, bytes, MADV_DONTNEED);
  return dropped.ok() || (dropped.error() == EINVAL && os::advise(begin, bytes, MADV_DONTNEED_LOCKED).ok());
}

// Marked first, while nothing can be touched; then opened. Markers that cannot be taken back stay in memory that is
// PROT_NONE again, and open_large() is told.
bool Guards::open_zones(AppAddr begin, std::size_t bytes) {
  if (kind_ != GuardKind::kMarker) return true;
  if (os::advise(begin, bytes, os::kMadvGuardInstall).ok() && os::protect(begin, bytes, kReadWrite).ok()) return true;
  forget_markers(begin, bytes);
  return false;
}

void Guards::forget_markers(AppAddr begin, std::size_t bytes) {
  if (!os::decommit(begin, bytes).ok()) stray_markers_.fetch_add(1, std::memory_order_relaxed);
}

bool Guards::close_zone(AppAddr begin, std::size_t bytes) {
  // One mapping becomes three at worst, when the zones around stay open.
  if (!maps_are_plenty() || !os::decommit(begin, bytes).ok()) return false;
  return true;
}

Guards::Opened Guards::open(AppAddr begin, std::size_t bytes) {
  if (kind_ == GuardKind::kMarker) {
    if (closed_by_protect_.load(std::memory_order_relaxed) != 0 && !os::protect(begin, bytes, kReadWrite).ok()) {
      return Opened::kFailed;
    }
    return os::advise(begin, bytes, os::kMadvGuardRemove).ok() ? Opened::kExactly : Opened::kFailed;
  }
  if (maps_are_plenty() && os::protect(begin, bytes, kReadWrite).ok()) {
    count_maps(2);
    return Opened::kExactly;
  }
  // Whole units up to the end of the guard page, so that neighbours opened like this are one mapping.
  const AppAddr first(round_down(begin.value, shadow::kUnitSize));
  const AppAddr last(round_up(begin.value + bytes + kPageSize, shadow::kUnitSize));
  return os::protect(first, last - first, kReadWrite).ok() ? Opened::kWholeUnits : Opened::kFailed;
}

bool Guards::close(AppAddr begin, std::size_t bytes) {
  const bool dropped = drop(begin, bytes);
  if (kind_ == GuardKind::kMarker) {
    if (os::advise(begin, bytes, os::kMadvGuardInstall).ok()) return true;
    // Locked memory takes no markers (memory ruling 17).
    if (!dropped || !maps_are_plenty() || !os::protect(begin, bytes, PROT_NONE).ok()) return false;
    closed_by_protect_.fetch_add(1, std::memory_order_relaxed);
    count_maps(2);
    return true;
  }
  if (!dropped || !os::protect(begin, bytes, PROT_NONE).ok()) return false;
  count_maps(-2);
  return true;
}

bool Guards::open_large(AppAddr begin, std::size_t bytes, std::size_t with_guard) {
  if (stray_markers_.load(std::memory_order_relaxed) != 0 &&
      !os::advise(begin, with_guard, os::kMadvGuardRemove).ok()) {
    return false;
  }
  if (maps_are_plenty() || kind_ != GuardKind::kMarker) {
    if (!os::protect(begin, bytes, kReadWrite).ok()) return false;
    count_maps(2);
    return true;
  }
  // Open to the end and marked there: neighbours merge into one mapping.
  if (os::advise(begin + bytes, with_guard - bytes, os::kMadvGuardInstall).ok() &&
      os::protect(begin, with_guard, kReadWrite).ok()) {
    count_maps(2);
    return true;
  }
  forget_markers(begin + bytes, with_guard - bytes);
  return false;
}

bool Guards::close_large(AppAddr begin, std::size_t with_guard) {
  if (!os::decommit(begin, with_guard).ok()) return false;
  count_maps(-2);
  return true;
}

}  // namespace penumbra::region
