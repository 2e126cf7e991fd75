#include "allocator/heap/arenas.h"

#include <sys/mman.h>

#include "allocator/region/regions.h"
#include "runtime/base/check.h"
#include "runtime/base/os_linux.h"
#include "shadow/address_map.h"

namespace penumbra::heap {
namespace {

// Puts the small pages of a range into a huge one, at once (include/uapi/asm-generic/mman-common.h, Linux 6.1).
constexpr int kMadvCollapse = 25;

}  // namespace

bool Arenas::init(AppRange span, Manage manage) {
  // Sparse: only pages that name a used unit are ever touched.
  const std::size_t bytes = round_up(span.bytes() / shadow::kUnitSize + 1, kPageSize);
  const os::Result reserved = os::reserve(AppAddr(), bytes);
  if (!reserved.ok()) return false;
  if (!os::remap_fresh(reserved.address(), bytes).ok()) {
    os::unmap(reserved.address(), bytes).ignore();
    return false;
  }
  span_ = span;
  manage_ = manage;
  taken_ = reserved.address().ptr<std::atomic<bool>>();
  return true;
}

bool Arenas::grow(std::size_t seen) {
  const LockGuard guard(grow_lock_);
  const std::size_t n = count_.load(std::memory_order_relaxed);
  if (n != seen) return true;
  if (n == kMaxArenas) return false;
  // Twice the last one; less where the span has no such hole any more.
  std::size_t bytes = n == 0 ? kFirstArena : 2 * arenas_[n - 1].bytes();
  for (; bytes >= kArenaAlignment; bytes /= 2) {
    region::Request request;
    request.bytes = bytes;
    request.alignment = kArenaAlignment;
    request.zero = true;
    request.kind = region::AreaKind::kArena;
    const AppAddr begin = region::allocate(request);
    if (begin.is_null()) continue;
    PENUMBRA_CHECK(begin >= span_.begin && begin + bytes <= span_.end);
    arenas_[n] = {begin, begin + bytes};
    // Published before mimalloc may hand out a block of it.
    count_.store(n + 1, std::memory_order_release);
    if (manage_(begin.ptr<void>(), bytes, true, false, true, -1)) {
      if (has_huge_pages_) advise_huge_locked(arenas_[n]);
      return true;
    }
    // No memory for mimalloc's own tables (a limit, a filter): the arena goes, and the program gets ENOMEM.
    count_.store(n, std::memory_order_release);
    region::free(begin, kNoStack);
    return false;
  }
  return false;
}

std::size_t Arenas::bytes() const {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count(); ++i) bytes += arenas_[i].bytes();
  return bytes;
}

const AppRange* Arenas::find(AppAddr a) const {
  const std::size_t n = count();
  for (std::size_t i = 0; i < n; ++i) {
    if (arenas_[i].contains(a)) return &arenas_[i];
  }
  return nullptr;
}

AppRange Arenas::range_of(AppAddr a) const {
  const AppRange* const arena = find(a);
  return arena != nullptr ? *arena : AppRange();
}

bool Arenas::take_slowly(std::size_t unit) {
  const AppAddr begin = span_.begin + unit * shadow::kUnitSize;
  const AppRange arena = range_of(begin);
  PENUMBRA_CHECK(arena.bytes() != 0);
  const std::size_t units = begin + shadow::kUnitSize < arena.end ? 2 : 1;
  if (!region::populate_arena(begin, units * shadow::kUnitSize)) return false;
  if (!taken_[unit].exchange(true, std::memory_order_release)) {
    if (taken_units_.fetch_add(1, std::memory_order_relaxed) + 1 == kUnitsBeforeHuge) use_huge_pages();
  }
  return true;
}

bool Arenas::is_untouched(AppAddr begin, std::size_t bytes) const {
  for (std::size_t unit = unit_of(begin); unit < unit_of(begin + bytes); ++unit) {
    if (taken_[unit].load(std::memory_order_relaxed)) return false;
  }
  return true;
}

void Arenas::use_huge_pages() {
  const LockGuard guard(grow_lock_);
  has_huge_pages_ = true;
  for (std::size_t i = 0; i < count(); ++i) advise_huge_locked(arenas_[i]);
}

// Hints all: without them everything works, at the price of more faults.
void Arenas::advise_huge_locked(AppRange arena) const {
  for (AppAddr at = arena.begin; at < arena.end;) {
    AppAddr end = at;
    while (end < arena.end && is_untouched(end, kHugePageSize)) end = end + kHugePageSize;
    if (at < end) os::advise(at, end - at, MADV_HUGEPAGE).ignore();
    at = end + kHugePageSize;
  }
  if (!shadow::is_direct()) return;
  // A huge page of shadow describes 16 MiB, which do not begin where the arena does. At the edges it would cover shadow
  // of others, who give theirs back by the page.
  const AppAddr shadow_begin(round_up(shadow::shadow_of(arena.begin).value, kHugePageSize));
  const AppAddr shadow_end(round_down(shadow::shadow_of(arena.end).value, kHugePageSize));
  if (shadow_begin >= shadow_end) return;
  os::advise(shadow_begin, shadow_end - shadow_begin, MADV_HUGEPAGE).ignore();
  for (AppAddr page = shadow_begin; page < shadow_end; page = page + kHugePageSize) {
    const AppAddr described = shadow::app_of(ShadowAddr(page.value));
    // Part of it is in small pages already, and the rest is about to follow.
    if (!is_untouched(described, kHugePageSize << shadow::kGranuleShift)) {
      os::advise(page, kHugePageSize, kMadvCollapse).ignore();
    }
  }
}

void Arenas::fork_prepare() {
  grow_lock_.lock();
}

void Arenas::fork_done() {
  grow_lock_.unlock();
}

void Arenas::reset_locks() {
  grow_lock_.reset_after_fork();
}

void Arenas::validate() const {
  const std::size_t n = count();
  for (std::size_t i = 0; i < n; ++i) {
    PENUMBRA_CHECK_OP(arenas_[i].begin.value % kArenaAlignment, ==, 0u);
    for (std::size_t j = 0; j < i; ++j) {
      PENUMBRA_CHECK(arenas_[i].end <= arenas_[j].begin || arenas_[j].end <= arenas_[i].begin);
    }
  }
  PENUMBRA_CHECK(n != 0 || taken_units() == 0);
}

}  // namespace penumbra::heap
