// What tests of the clean-up see that nobody else does: pools, lists and locks of a node.
#pragma once

#include <vector>

#include "tests/region/support.h"

namespace penumbra::region {

class PurgeTestPeer {
 public:
  explicit PurgeTestPeer(LazyRegions& regions) : regions_(*regions) {}

  Mutex& lock_of(unsigned node) { return regions_.nodes_[node].lock; }
  Mutex& purge_mutex() { return regions_.purge_mutex_; }
  unsigned lanes_in_use() const {
    unsigned used = 0;
    for (const auto& lane : regions_.lanes_) used += !lane.is_idle();
    return used;
  }
  std::uint32_t pooled(unsigned node, std::uint32_t pages) const { return regions_.nodes_[node].pools[pages].count; }
  std::uint32_t in_hand() const {
    return regions_.lanes_[0].chunk.stage == Stage::kEmpty ? 0 : regions_.lanes_[0].chunk.count;
  }
  std::uint32_t settled() const { return regions_.lanes_[0].chunk.settled; }

 private:
  RegionAllocator<LazyShadow>& regions_;
};

// Calls `hook` inside each memory call, where a purge holds its mutex and no node's lock.
class InMemoryCalls {
 public:
  explicit InMemoryCalls(void (*hook)()) {
    hook_ = hook;
    os::set_failure_injector_test_only([](os::MemoryCall) {
      if (!running_) {
        running_ = true;
        hook_();
        running_ = false;
      }
      return 0;
    });
  }
  ~InMemoryCalls() { os::set_failure_injector_test_only(nullptr); }

 private:
  static inline void (*hook_)();
  static inline bool running_ = false;
};

inline std::vector<AppAddr> allocate_many(LazyRegions& regions, int count, std::size_t pages = 1) {
  std::vector<AppAddr> areas;
  for (int i = 0; i < count; ++i) areas.push_back(regions.allocate(pages * kPageSize));
  return areas;
}

inline void free_all(LazyRegions& regions, const std::vector<AppAddr>& areas) {
  for (const AppAddr a : areas) EXPECT_EQ(regions.free(a), FreeVerdict::kFreed);
}

}  // namespace penumbra::region
