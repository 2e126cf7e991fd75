// One heap for all tests of a process: libmimalloc loaded beside the C library's malloc (local, so that gtest
// does not get it), the shadow, and a span of regions small enough to be used up.
#pragma once

#include "allocator/heap/heap.h"
#include "allocator/region/regions.h"
#include "shadow/address_map.h"
#include "shadow/check.h"
#include "tests/support/shadow_map.h"

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <cstdlib>

namespace penumbra::heap {

inline constexpr std::size_t kTestQuarantine = 1u << 20;
inline constexpr std::size_t kTestSpan = std::size_t{2} << 30;

class HeapTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    static const bool ready = [] {
      if (dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL) == nullptr) return false;
      Options options;
      options.quarantine = kTestQuarantine;
      options.span = kTestSpan;
      return reserve_test_map().ok() && region::init(options) && init(options);
    }();
    ASSERT_TRUE(ready);
  }

  void TearDown() override { validate(); }

  static char* allocate(std::size_t bytes, std::size_t alignment = 16, AllocatorName by = AllocatorName::kMalloc) {
    Request request;
    request.bytes = bytes;
    request.alignment = alignment;
    request.by = by;
    return static_cast<char*>(heap::allocate(request));
  }

  static FreeVerdict release(void* p) { return heap::free(p, AllocatorName::kNone, kNoStack); }

  static bool accessible(const char* p, std::size_t bytes) { return shadow::is_accessible(AppAddr(p), bytes); }

  static std::uint8_t shadow_at(const void* p) { return shadow::load_byte(AppAddr(p)); }
};

}  // namespace penumbra::heap
