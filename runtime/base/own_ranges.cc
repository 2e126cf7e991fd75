#include "runtime/base/own_ranges.h"

#include <algorithm>
#include <atomic>

namespace penumbra::own_ranges {
namespace {

// A process has about ten; tables that grow by pieces add a few dozen.
constexpr std::size_t kSlots = 512;

struct Slot {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
  std::atomic<Use> use{Use::kData};

  AppRange range() const {
    return {AppAddr(begin.load(std::memory_order_acquire)), AppAddr(end.load(std::memory_order_acquire))};
  }
};

constinit Slot g_slots[kSlots];
// Slots at and above this one have never been used.
constinit std::atomic<std::size_t> g_used{0};
constinit std::atomic<std::size_t> g_lost{0};

void raise_used(std::size_t used) {
  std::size_t seen = g_used.load(std::memory_order_relaxed);
  while (seen < used && !g_used.compare_exchange_weak(seen, used, std::memory_order_acq_rel)) {
  }
}

template <class Visit>
bool any_of(Visit visit) {
  const std::size_t used = g_used.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < used; ++i) {
    const AppRange range = g_slots[i].range();
    if (!range.begin.is_null() && range.begin < range.end && visit(g_slots[i], range)) return true;
  }
  return false;
}

}  // namespace

void add(AppRange range, Use use) {
  for (std::size_t i = 0; i < kSlots; ++i) {
    std::uintptr_t free = 0;
    if (!g_slots[i].begin.compare_exchange_strong(free, range.begin.value, std::memory_order_acq_rel)) continue;
    g_slots[i].use.store(use, std::memory_order_relaxed);
    g_slots[i].end.store(range.end.value, std::memory_order_release);
    raise_used(i + 1);
    return;
  }
  g_lost.fetch_add(range.bytes(), std::memory_order_relaxed);
}

void remove(AppRange range) {
  any_of([&](Slot& slot, AppRange own) {
    if (own.end <= range.begin || range.end <= own.begin) return false;
    if (range.begin > own.begin) {
      slot.end.store(range.begin.value, std::memory_order_release);
      if (range.end < own.end) add({range.end, own.end}, slot.use.load(std::memory_order_relaxed));
    } else if (range.end < own.end) {
      slot.begin.store(range.end.value, std::memory_order_release);
    } else {
      slot.end.store(0, std::memory_order_release);
      slot.begin.store(0, std::memory_order_release);
    }
    return false;
  });
}

bool overlaps(AppRange range) {
  return any_of([&](const Slot&, AppRange own) { return own.begin < range.end && range.begin < own.end; });
}

AppRange first_foreign(AppRange range) {
  const auto step_over = [&](const Slot&, AppRange own) {
    const bool covers = own.begin <= range.begin && range.begin < own.end;
    if (covers) range.begin = std::min(own.end, range.end);
    return covers;
  };
  while (range.begin < range.end && any_of(step_over)) {
  }
  any_of([&](const Slot&, AppRange own) {
    if (own.begin > range.begin) range.end = std::min(range.end, own.begin);
    return false;
  });
  return range;
}

std::size_t total_bytes() {
  std::size_t total = 0;
  any_of([&](const Slot&, AppRange own) {
    total += own.bytes();
    return false;
  });
  return total;
}

std::size_t data_bytes() {
  std::size_t total = 0;
  any_of([&](const Slot& slot, AppRange own) {
    if (slot.use.load(std::memory_order_relaxed) == Use::kData) total += own.bytes();
    return false;
  });
  return total;
}

void became_data(AppAddr at) {
  any_of([&](Slot& slot, AppRange own) {
    const bool is_it = own.contains(at);
    if (is_it) slot.use.store(Use::kData, std::memory_order_relaxed);
    return is_it;
  });
}

std::size_t lost_bytes() {
  return g_lost.load(std::memory_order_relaxed);
}

}  // namespace penumbra::own_ranges
