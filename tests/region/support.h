// An allocator of each policy with the direct map under it, small enough that edges are near.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "allocator/region/region_allocator.h"
#include "shadow/address_map.h"
#include "shadow/check.h"
#include "tests/support/shadow_map.h"

namespace penumbra::region {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

// One lazy allocator whose units decide for shadow::first_bad, as the process's do.
class LazyRegions {
 public:
  explicit LazyRegions(Config config = small()) {
    EXPECT_TRUE(reserve_test_map().ok());
    EXPECT_TRUE(allocator_->init(config).ok());
    current_ = allocator_.get();
    shadow::set_span({allocator_->span().begin, allocator_->span().end, [](AppAddr begin, AppAddr end) {
                        return current_->shadow().units().first_unpopulated(begin, end);
                      }});
  }
  ~LazyRegions() {
    shadow::set_span({});
    // Shadow outlives the span otherwise, and the kernel may give the span's addresses to the next test.
    const AppRange span = allocator_->span();
    drop_shadow(span.begin, span.bytes());
    allocator_->destroy();
  }

  static Config small() {
    Config config;
    config.span_bytes = 64 * kMiB;
    config.nodes = 2;
    config.shadow_retain = 0;
    config.purge_threshold = 4 * kMiB;
    return config;
  }

  RegionAllocator<LazyShadow>* operator->() { return allocator_.get(); }
  RegionAllocator<LazyShadow>& operator*() { return *allocator_; }

  AppAddr allocate(std::size_t bytes, std::size_t alignment = kPageSize) {
    Request request;
    request.bytes = bytes;
    request.alignment = alignment;
    return allocator_->allocate(request);
  }
  FreeVerdict free(AppAddr a) { return allocator_->free(a, kNoStack); }

 private:
  static inline RegionAllocator<LazyShadow>* current_ = nullptr;
  std::unique_ptr<RegionAllocator<LazyShadow>> allocator_ = std::make_unique<RegionAllocator<LazyShadow>>();
};

inline bool is_readable(AppAddr a) {
  char byte;
  return os::try_read_memory(a, &byte, 1);
}

}  // namespace penumbra::region
