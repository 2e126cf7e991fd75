// Several threads at once: allocations, frees, purges, look-ups, forks. Each thread writes its mark into its areas and
// finds it there until it frees them; at the end nothing is left.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "tests/region/support.h"

namespace penumbra::region {
namespace {

struct Owned {
  AppAddr at;
  std::size_t bytes;
};

void work(LazyRegions& regions, unsigned seed, int rounds, std::atomic<int>& bad) {
  std::mt19937 random(seed);
  std::vector<Owned> owned;
  for (int i = 0; i < rounds; ++i) {
    if (owned.size() < 12 || random() % 2 == 0) {
      Request request;
      request.bytes = random() % 64 == 0 ? 2 * kMiB : 1 + random() % (20 * kPageSize);
      request.zero = random() % 2 == 0;
      const AppAddr a = regions->allocate(request);
      if (a.is_null()) continue;
      if (request.zero && (a.ptr()[0] != 0 || a.ptr()[request.bytes - 1] != 0)) bad.fetch_add(1);
      if (shadow::first_bad(a, request.bytes) != shadow::kNoBadByte) bad.fetch_add(1);
      if (shadow::first_bad(a, request.bytes + 1) != a + request.bytes) bad.fetch_add(1);
      a.ptr()[0] = a.ptr()[request.bytes - 1] = static_cast<std::uint8_t>(seed);
      owned.push_back({a, request.bytes});
    } else {
      const std::size_t n = random() % owned.size();
      const Owned area = owned[n];
      owned[n] = owned.back();
      owned.pop_back();
      if (area.at.ptr()[0] != static_cast<std::uint8_t>(seed)) bad.fetch_add(1);
      if (random() % 8 == 0) {
        regions->free_from_signal(area.at, kNoStack, {}, AreaKind::kVmalloc);
      } else if (regions.free(area.at) != FreeVerdict::kFreed) {
        bad.fetch_add(1);
      }
      AreaInfo info;
      if (regions->describe(area.at, info) && info.state == AreaState::kNever) bad.fetch_add(1);
    }
    if (random() % 512 == 0) regions->purge_all();
  }
  for (const Owned& area : owned) regions.free(area.at);
}

void stress(Config config, int rounds) {
  LazyRegions regions(config);
  std::atomic<int> bad{0};
  std::vector<std::thread> threads;
  for (unsigned t = 1; t <= 3; ++t) threads.emplace_back([&, t] { work(regions, t, rounds, bad); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(bad.load(), 0);
  regions->validate();
  regions->purge_all();
  EXPECT_EQ(regions->stats().live_areas, 0u);
  EXPECT_EQ(regions->stats().shadow_pages, regions->stats().shadow_pinned);
  regions->validate();
}

TEST(RegionConcurrency, ThreadsNeverSeeEachOthersAreasOrShadow) {
  Config config = LazyRegions::small();
  config.purge_threshold = 512 << 10;
  stress(config, 4000);
}

TEST(RegionConcurrency, RetainedMemoryAndDyingShadowChangeNothing) {
  Config config = LazyRegions::small();
  config.purge_threshold = 512 << 10;
  config.retain = 256 << 10;
  config.shadow_retain = 16 * kPageSize;
  config.nodes = 3;
  stress(config, 4000);
}

TEST(RegionConcurrency, MprotectGuardsHoldUnderThreads) {
  Config config = LazyRegions::small();
  config.purge_threshold = 512 << 10;
  config.guard = GuardKind::kMprotect;
  stress(config, 1500);
}

TEST(RegionConcurrency, PinnedUnitsHoldUnderThreads) {
  Config config = LazyRegions::small();
  config.purge_threshold = 512 << 10;
  config.guard = GuardKind::kPinned;
  stress(config, 1500);
}

TEST(RegionConcurrency, ValidateMayRunWhileOthersWork) {
  Config config = LazyRegions::small();
  config.purge_threshold = 256 << 10;
  LazyRegions regions(config);
  std::atomic<int> bad{0};
  std::atomic<bool> done{false};
  std::thread worker([&] {
    work(regions, 5, 1500, bad);
    done.store(true);
  });
  // A pause each time: a validator that takes every lock again at once starves the worker for minutes.
  while (!done.load()) {
    regions->validate();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  worker.join();
  EXPECT_EQ(bad.load(), 0);
}

// 7: the child of a threaded program has one thread, no lock held, no unit stuck, and can do everything.
TEST(RegionConcurrency, ChildOfAThreadedProgramCanAllocateFreeAndPurge) {
  Config config = LazyRegions::small();
  config.purge_threshold = 512 << 10;
  LazyRegions regions(config);
  std::atomic<bool> stop{false};
  std::atomic<int> bad{0};
  std::vector<std::thread> threads;
  for (unsigned t = 1; t <= 2; ++t) {
    threads.emplace_back([&, t] {
      while (!stop.load()) work(regions, t, 100, bad);
    });
  }
  for (int i = 0; i < 25; ++i) {
    regions->fork_prepare();
    const pid_t child = fork();
    if (child == 0) {
      regions->fork_child();
      alarm(20);
      std::atomic<int> own{0};
      work(regions, 9, 300, own);
      regions->purge_all();
      regions->validate();
      _exit(own.load() == 0 ? 0 : 1);
    }
    regions->fork_parent();
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << "fork " << i;
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(bad.load(), 0);
  regions->purge_all();
  regions->validate();
}

}  // namespace
}  // namespace penumbra::region
