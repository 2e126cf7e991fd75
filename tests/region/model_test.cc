// Random programs of allocations, frees, resizes and purges against a std::map, with every invariant checked after
// each step. A failure prints the seed; a found bug stays as a test of its own.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "tests/region/support.h"

namespace penumbra::region {
namespace {

struct Live {
  std::size_t bytes;
  std::uint8_t mark;  // written to the first and last byte
};

class Program {
 public:
  Program(LazyRegions& regions, unsigned seed) : regions_(regions), random_(seed) {}

  void step() {
    switch (random_() % 16) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
      case 6: return allocate();
      case 7:
      case 8:
      case 9:
      case 10:
      case 11: return free();
      case 12: return resize();
      case 13: return bad_frees();
      case 14: return probe();
      default:
        if (random_() % 8 == 0) {
          regions_->purge_all();
        } else {
          regions_->purge_step();
        }
    }
  }

  void finish() {
    while (!live_.empty()) {
      EXPECT_EQ(regions_.free(AppAddr(live_.begin()->first)), FreeVerdict::kFreed);
      live_.erase(live_.begin());
    }
    regions_->purge_all();
    const Stats stats = regions_->stats();
    EXPECT_EQ(stats.live_areas + stats.lazy_areas + stats.retained_areas, 0u);
    EXPECT_EQ(stats.shadow_pages, stats.shadow_pinned);
  }

  std::size_t live() const { return live_.size(); }

 private:
  std::size_t any_size() {
    switch (random_() % 8) {
      case 0: return 1 + random_() % (3 * kMiB);
      case 1: return (1 + random_() % 300) * kPageSize;
      case 2: return 1 + random_() % (200 * kPageSize);
      default: return 1 + random_() % (12 * kPageSize);
    }
  }

  void allocate() {
    Request request;
    request.bytes = any_size();
    request.zero = random_() % 2 == 0;
    if (random_() % 4 == 0) request.alignment = std::size_t{1} << (random_() % 24);
    if (random_() % 8 == 0) request.kind = AreaKind::kHeapLarge;
    if (random_() % 16 == 0) request.kind = AreaKind::kPerCpu;
    const AppAddr a = regions_->allocate(request);
    if (a.is_null()) return;
    ASSERT_EQ(a.value % std::max(request.alignment, kPageSize), 0u);
    // Disjoint from all others, guard included.
    const auto after = live_.upper_bound(a.value);
    const std::uintptr_t end = round_up(a.value + request.bytes, kPageSize) + kPageSize;
    if (after != live_.end()) {
      ASSERT_LE(end, after->first);
    }
    if (after != live_.begin()) {
      const auto before = std::prev(after);
      ASSERT_LE(round_up(before->first + before->second.bytes, kPageSize) + kPageSize, a.value);
    }
    if (request.zero) {
      for (std::size_t at = 0; at < request.bytes; at += kPageSize / 2) ASSERT_EQ(a.ptr()[at], 0);
      ASSERT_EQ(a.ptr()[request.bytes - 1], 0);
    }
    const auto mark = static_cast<std::uint8_t>(random_());
    a.ptr()[0] = a.ptr()[request.bytes - 1] = mark;
    live_[a.value] = {request.bytes, mark};
  }

  std::map<std::uintptr_t, Live>::iterator any() {
    auto it = live_.lower_bound(regions_->span().begin.value + random_() % regions_->span().bytes());
    return it == live_.end() ? live_.begin() : it;
  }

  void free() {
    if (live_.empty()) return;
    const auto it = any();
    const AppAddr a(it->first);
    ASSERT_EQ(a.ptr()[0], it->second.mark);
    ASSERT_EQ(a.ptr()[it->second.bytes - 1], it->second.mark);
    if (random_() % 4 == 0) {
      AreaInfo info;
      ASSERT_TRUE(regions_->describe(a, info));
      regions_->free_from_signal(a, kNoStack, {}, info.kind);
    } else {
      ASSERT_EQ(regions_.free(a), FreeVerdict::kFreed);
    }
    freed_ = a;
    live_.erase(it);
  }

  void resize() {
    if (live_.empty()) return;
    const auto it = any();
    const AppAddr a(it->first);
    const std::size_t bytes = random_() % 2 == 0 ? any_size() : 1 + random_() % (2 * it->second.bytes);
    std::size_t old = 0;
    AreaInfo info;
    ASSERT_TRUE(regions_->describe(a, info));
    if (regions_->resize(a, bytes, kNoStack, info.kind, old) != ResizeVerdict::kResized) return;
    ASSERT_EQ(old, it->second.bytes);
    ASSERT_LE(bytes, round_up(old, kPageSize) + kMiB);
    it->second.bytes = bytes;
    a.ptr()[bytes - 1] = a.ptr()[0];
  }

  void bad_frees() {
    if (!live_.empty()) {
      const auto it = any();
      if (it->second.bytes > 1) {
        const std::size_t inside = 1 + random_() % (it->second.bytes - 1);
        ASSERT_EQ(regions_.free(AppAddr(it->first + inside)), FreeVerdict::kInterior);
      }
    }
    if (!freed_.is_null() && live_.find(freed_.value) == live_.end()) {
      // Double, foreign if its pages were reused, interior if they lie in another area now; never accepted.
      ASSERT_NE(regions_.free(freed_), FreeVerdict::kFreed);
    }
  }

  void probe() {
    if (live_.empty()) return;
    const auto it = any();
    const AppAddr a(it->first);
    ASSERT_EQ(shadow::first_bad(a, it->second.bytes), shadow::kNoBadByte);
    ASSERT_EQ(shadow::first_bad(a, it->second.bytes + 1), a + it->second.bytes);
    ASSERT_EQ(regions_->requested_bytes(a), it->second.bytes);
    if (!freed_.is_null() && live_.upper_bound(freed_.value) == live_.begin()) {
      ASSERT_FALSE(shadow::is_accessible(freed_, 1));
    }
  }

  LazyRegions& regions_;
  std::mt19937 random_;
  std::map<std::uintptr_t, Live> live_;
  AppAddr freed_;
};

void run(Config config, unsigned seed, int steps) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  LazyRegions regions(config);
  Program program(regions, seed);
  for (int i = 0; i < steps; ++i) {
    program.step();
    if (testing::Test::HasFatalFailure()) return;
    regions->validate();
  }
  program.finish();
  regions->validate();
}

TEST(RegionModel, RandomProgramsAgreeWithTheModel) {
  for (unsigned seed = 1; seed <= 6; ++seed) run(LazyRegions::small(), seed, 250);
}

TEST(RegionModel, RandomProgramsAgreeWhenMemoryIsRetained) {
  Config config = LazyRegions::small();
  config.retain = 2 * kMiB;
  config.shadow_retain = 64 * kPageSize;
  for (unsigned seed = 11; seed <= 14; ++seed) run(config, seed, 250);
}

TEST(RegionModel, RandomProgramsAgreeUnderMprotect) {
  Config config = LazyRegions::small();
  config.guard = GuardKind::kMprotect;
  for (unsigned seed = 21; seed <= 24; ++seed) run(config, seed, 250);
}

TEST(RegionModel, RandomProgramsAgreeWhenPinned) {
  Config config = LazyRegions::small();
  config.guard = GuardKind::kPinned;
  for (unsigned seed = 31; seed <= 34; ++seed) run(config, seed, 250);
}

TEST(RegionModel, RandomProgramsAgreeWithOneAreaPerChunkAndOneNode) {
  Config config = LazyRegions::small();
  config.purge_chunk = 1;
  config.nodes = 1;
  config.purge_threshold = 256 << 10;
  for (unsigned seed = 41; seed <= 43; ++seed) run(config, seed, 250);
}

}  // namespace
}  // namespace penumbra::region
