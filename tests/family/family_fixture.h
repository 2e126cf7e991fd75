// The family over an allocator of its own with real shadow: a small span in the direct map, so that
// first_bad() judges.
#pragma once

#include "allocator/region/region_allocator.h"
#include "runtime/base/os_linux.h"
#include "shadow/address_map.h"
#include "shadow/check.h"
#include "tests/support/shadow_map.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>

namespace penumbra::region {

using Regions = RegionAllocator<LazyShadow>;

// Fails the memory call that a test chooses by number, counted from arm(); all kinds of call count.
class CallFailer {
 public:
  static void arm(std::uint64_t number) {
    remaining_ = number;
    hit_ = false;
    os::set_failure_injector_test_only([](os::MemoryCall) {
      if (remaining_-- != 0) return 0;
      hit_ = true;
      return ENOMEM;
    });
  }

  // True when the chosen call was reached.
  static bool disarm() {
    os::set_failure_injector_test_only(nullptr);
    return hit_;
  }

 private:
  static inline std::uint64_t remaining_ = 0;
  static inline bool hit_ = false;
};

class FamilyTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(reserve_test_map().ok());
    Config config;
    config.span_bytes = std::size_t{1} << 30;
    config.nodes = 2;
    config.shadow_retain = 0;
    ASSERT_TRUE(regions_.init(config).ok());
    current_ = &regions_;
    shadow::set_span({regions_.span().begin, regions_.span().end, [](AppAddr begin, AppAddr end) {
                        return current_->shadow().units().first_unpopulated(begin, end);
                      }});
  }

  void TearDown() override {
    os::set_failure_injector_test_only(nullptr);
    shadow::set_span({});
    regions_.destroy();
  }

  // Nothing of the family is left: no area, and no shadow page but those that are pinned.
  void expect_nothing_left() {
    regions_.purge_all();
    regions_.validate();
    EXPECT_EQ(regions_.stats().live_areas, 0u);
    EXPECT_EQ(regions_.stats().shadow_pages, regions_.stats().shadow_pinned);
  }

  static bool fine(AppAddr a, std::size_t bytes) { return shadow::first_bad(a, bytes) == shadow::kNoBadByte; }

  static int shadow_at(AppAddr a) { return shadow::load_byte(a); }

  Regions regions_;

 private:
  static inline Regions* current_ = nullptr;
};

constexpr int code(shadow::ShadowTag tag) {
  return static_cast<int>(tag);
}

}  // namespace penumbra::region
