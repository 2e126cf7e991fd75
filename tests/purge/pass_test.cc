// The properties of a purge pass, each by the steps it takes. tests/purge/mutations.py breaks each in turn and sees its
// test fail.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "allocator/region/thread_hint.h"
#include "tests/purge/support.h"

namespace penumbra::region {
namespace {

void stay_on_node(unsigned node) {
  thread_hint.cpu = node;
  thread_hint.uses_left = ~0u;
}

// Nothing happens but what the test asks for: the threshold is out of reach until a pass is forced.
Config quiet() {
  Config config = LazyRegions::small();
  config.nodes = 1;
  config.purge_threshold = kMiB;
  return config;
}

// P3: 40 requests (a report each four pages) arrive while node 0 is behind the cursor; one more pass serves them all.
TEST(PurgePass, RequestsDuringAPassMakeExactlyOneMore) {
  Config config = quiet();
  config.nodes = 2;
  config.purge_chunk = 1;
  LazyRegions regions(config);
  stay_on_node(0);
  const std::vector<AppAddr> first = allocate_many(regions, 201);
  stay_on_node(1);
  const std::vector<AppAddr> second = allocate_many(regions, 130);
  free_all(regions, second);
  for (int i = 0; i < 8; ++i) regions.allocate(2 * kPageSize);
  ASSERT_EQ(regions->stats().purge_passes, 1u);
  ASSERT_GT(regions->stats().lazy_areas, 100u);
  for (int i = 0; i < 200; ++i) regions->free_from_signal(first[i], kNoStack, {}, AreaKind::kVmalloc);
  regions.free(first[200]);
  for (int i = 0; i < 1200; ++i) regions.allocate(2 * kPageSize);
  EXPECT_EQ(regions->stats().purge_passes, 2u);
  EXPECT_EQ(regions->stats().lazy_areas, 0u);
}

// P3: with nothing asked for meanwhile, one pass is one pass.
TEST(PurgePass, WithoutARequestThereIsNoSecond) {
  LazyRegions regions(quiet());
  const std::vector<AppAddr> areas = allocate_many(regions, 128);
  for (std::size_t i = 0; i < 127; ++i) regions.free(areas[i]);
  ASSERT_EQ(regions->stats().purge_passes, 0u);
  regions.free(areas[127]);
  while (regions->purge_step()) {
  }
  EXPECT_EQ(regions->stats().purge_passes, 1u);
  EXPECT_EQ(regions->stats().lazy_areas, 0u);
}

// P1: the cursor takes nothing more in hand while the chunk before is not settled, and flushes it once.
TEST(PurgePass, ChunkIsSettledBeforeThePassGoesOnAndFlushedOnce) {
  Config config = quiet();
  config.purge_threshold = 40 * kPageSize;
  config.purge_chunk = 10;
  config.settle_areas = 4;
  LazyRegions regions(config);
  PurgeTestPeer peer(regions);
  const std::vector<AppAddr> areas = allocate_many(regions, 40);
  for (const AppAddr a : areas) {
    a.ptr()[0] = 1;
    regions->free_from_signal(a, kNoStack, {}, AreaKind::kVmalloc);
  }
  const std::uint64_t before = regions->stats().flushes;
  regions.allocate(2 * kPageSize);  // queues them, and makes the first step
  for (std::uint64_t chunk = 0; chunk < 4; ++chunk) {
    for (const std::uint32_t settled : {4u, 8u, 10u}) {
      if (chunk != 0 || settled != 4) {
        ASSERT_TRUE(regions->purge_step());
      }
      EXPECT_EQ(regions->stats().lazy_areas, 30 - 10 * chunk);
      EXPECT_EQ(regions->stats().flushes, before + chunk + 1);
      EXPECT_EQ(peer.settled(), settled);
      EXPECT_EQ(peer.in_hand(), settled == 10 ? 0u : 10u);
      for (const AppAddr a : areas) EXPECT_EQ(shadow::first_bad(a, 1), a);
      regions->validate();
    }
  }
  EXPECT_EQ(peer.pooled(0, 1), 40u);
  EXPECT_EQ(regions->stats().purge_passes, 1u);
}

PurgeTestPeer* g_peer = nullptr;
RegionAllocator<LazyShadow>* g_regions = nullptr;
int g_turned_away = 0;
int g_let_in = 0;

// P1: what stops a step in the middle of its last stage is a node's lock that somebody holds. Nothing is lost, and
// the flush is not made again.
TEST(PurgePass, StepThatMeetsALockedNodeIsFinishedByTheNext) {
  LazyRegions regions(quiet());
  PurgeTestPeer peer(regions);
  g_peer = &peer;
  const std::vector<AppAddr> areas = allocate_many(regions, 128);
  for (std::size_t i = 0; i < 127; ++i) regions.free(areas[i]);
  const std::uint64_t before = regions->stats().flushes;
  {
    InMemoryCalls lock([] { g_peer->lock_of(0).try_lock(); });
    regions.free(areas[127]);  // reaches the threshold; the node is taken when it comes to settling
  }
  EXPECT_EQ(peer.in_hand(), 64u);
  EXPECT_EQ(peer.settled(), 0u);
  EXPECT_TRUE(regions->purge_step());
  EXPECT_EQ(peer.settled(), 0u);
  EXPECT_EQ(peer.pooled(0, 1), 0u);
  peer.lock_of(0).unlock();
  EXPECT_TRUE(regions->purge_step());
  EXPECT_EQ(peer.in_hand(), 0u);
  EXPECT_EQ(peer.pooled(0, 1), 64u);
  EXPECT_EQ(regions->stats().flushes, before + 1);
  while (regions->purge_step()) {
  }
  EXPECT_EQ(peer.pooled(0, 1), 128u);
  regions->validate();
}

int g_child_status = -1;

// P1 across a fork that called no hooks, in the middle of clearing: the child has the chunk, and finishes it.
TEST(PurgePass, ChildThatSkippedTheHooksFinishesTheChunkOfItsParent) {
  LazyRegions regions(quiet());
  PurgeTestPeer peer(regions);
  g_regions = &*regions;
  g_peer = &peer;
  g_child_status = -1;
  const std::vector<AppAddr> areas = allocate_many(regions, 128);
  for (std::size_t i = 0; i < 127; ++i) regions.free(areas[i]);
  {
    InMemoryCalls fork_here([] {
      if (g_child_status != -1) return;
      const auto child = static_cast<pid_t>(syscall(SYS_fork));
      if (child == 0) {
        os::set_failure_injector_test_only(nullptr);
        const bool in_hand = g_peer->in_hand() == 64;
        g_regions->fork_child();
        g_regions->purge_all();
        const Stats stats = g_regions->stats();
        g_regions->validate();
        _exit(in_hand && stats.shadow_pages == 0 && stats.lazy_areas == 0 && g_peer->in_hand() == 0 ? 0 : 1);
      }
      waitpid(child, &g_child_status, 0);
    });
    regions.free(areas[127]);
  }
  EXPECT_EQ(g_child_status, 0);
}

// P5: whoever drains holds the mutex, so that nobody else gets in.
TEST(PurgePass, EveryDrainerHoldsTheMutex) {
  LazyRegions regions(quiet());
  g_regions = &*regions;
  g_turned_away = g_let_in = 0;
  InMemoryCalls intrude([] { ++(g_regions->purge_step() ? g_let_in : g_turned_away); });
  for (int round = 0; round < 2; ++round) {
    const std::vector<AppAddr> areas = allocate_many(regions, 200);
    g_turned_away = g_let_in = 0;
    free_all(regions, areas);
    if (round == 1) regions->purge_all();
    while (regions->purge_step()) {
    }
    EXPECT_GT(g_turned_away, 0);
    EXPECT_EQ(g_let_in, 0);
  }
}

// Each pass takes a quarter of what a pool held all the time since the last one, rounded up; never what was needed.
TEST(PurgePass, PoolsThatAreNotNeededDecayByAQuarterAPass) {
  Config config = quiet();
  LazyRegions regions(config);
  PurgeTestPeer peer(regions);
  const auto pass = [&] {
    const std::uint64_t passes = regions->stats().purge_passes;
    free_all(regions, allocate_many(regions, 4, 63));  // what the threshold is, with guards
    while (regions->purge_step()) {
    }
    ASSERT_EQ(regions->stats().purge_passes, passes + 1);
  };
  free_all(regions, allocate_many(regions, 40));
  for (const std::uint32_t expected : {40u, 40u, 30u, 22u, 16u, 12u, 9u}) {
    pass();
    EXPECT_EQ(peer.pooled(0, 1), expected);
  }
  // Seven of nine are taken for a while. Of the two that were not, a pass takes one, and the seven come back.
  const std::vector<AppAddr> needed = allocate_many(regions, 7);
  free_all(regions, needed);
  pass();
  EXPECT_EQ(peer.pooled(0, 1), 8u);
  regions->purge_all();
  EXPECT_EQ(peer.pooled(0, 1), 0u);
}

std::uint64_t g_most_pages = 0;
std::uint64_t g_pages_before = 0;

// Ruling 10: a chunk ends before the area that would take it over its pages, not behind it.
TEST(PurgePass, StepTakesNoMorePagesThanItsBound) {
  Config config = quiet();
  config.purge_threshold = 4 * kMiB;
  config.step_hook = [](std::uint64_t) {
    const std::uint64_t now = g_regions->stats().flushed_pages;
    g_most_pages = std::max(g_most_pages, now - g_pages_before);
    g_pages_before = now;
  };
  LazyRegions regions(config);
  g_regions = &*regions;
  g_most_pages = g_pages_before = 0;
  free_all(regions, allocate_many(regions, 20, 100));
  while (regions->purge_step()) {
  }
  EXPECT_GE(regions->stats().purge_chunks, 3u);
  // Five areas, and the guards between neighbours.
  EXPECT_GE(g_most_pages, 500u);
  EXPECT_LE(g_most_pages, 512u);
}

// Areas are given up in an order in which no two neighbours follow each other; a chunk takes neighbours all the same.
TEST(PurgePass, NeighboursAreTornDownTogether) {
  LazyRegions regions(quiet());
  const std::vector<AppAddr> areas = allocate_many(regions, 128);
  for (const AppAddr a : areas) a.ptr()[0] = 1;
  for (std::size_t i = 0; i < 127; ++i) regions.free(areas[(i * 5) % 128]);
  ASSERT_EQ(regions->stats().purge_chunks, 0u);
  const std::uint64_t before = regions->stats().flushed_pages;
  regions.free(areas[(127 * 5) % 128]);
  ASSERT_EQ(regions->stats().lazy_areas, 64u);
  // One range: 64 pages and the guard pages between them.
  EXPECT_EQ(regions->stats().flushed_pages - before, 64u + 63u);
}

// What signal handlers freed at once is no pause for the next call: it finishes 64 of them.
TEST(PurgePass, CallFinishesAFewFreesOfSignalHandlersAtATime) {
  Config config = quiet();
  config.purge_threshold = 16 * kMiB;
  LazyRegions regions(config);
  for (const AppAddr a : allocate_many(regions, 500)) {
    regions->free_from_signal(a, kNoStack, {}, AreaKind::kVmalloc);
  }
  for (std::uint64_t queued = 64; queued < 500; queued += 64) {
    regions.allocate(kPageSize);
    ASSERT_EQ(regions->stats().lazy_areas, queued);
  }
  regions.allocate(kPageSize);
  EXPECT_EQ(regions->stats().lazy_areas, 500u);
  regions->validate();
}

// Ruling 12: shadow of units that died goes in batches, not by a call for the few of each step; what is kept besides is
// bounded.
TEST(PurgePass, ShadowThatDiesIsDroppedByTheBatch) {
  constexpr std::size_t kKept = 512;
  constexpr std::size_t kBatch = 64;
  Config config = quiet();
  config.shadow_retain = kKept * kPageSize;
  LazyRegions regions(config);
  // 53 MiB of address space: more than pools take, and so many units that most must go.
  const std::vector<AppAddr> areas = allocate_many(regions, 1500, 8);
  int closing = 0;
  int dropping = 0;
  auto look = [&, last = regions->stats().shadow_pages_dying]() mutable {
    const std::uint64_t now = regions->stats().shadow_pages_dying;
    closing += now > last && last >= kKept;
    dropping += now < last;
    EXPECT_LE(now, kKept + kBatch);
    EXPECT_TRUE(now >= last || now == kKept) << now;
    last = now;
  };
  for (const AppAddr a : areas) {
    regions.free(a);
    look();
  }
  while (regions->purge_step()) look();
  EXPECT_GT(dropping, 2);
  EXPECT_GE(closing, dropping);  // steps that gathered more, and made no call for it
  regions->purge_all();
  EXPECT_EQ(regions->stats().shadow_pages_dying, 0u);
  regions->validate();
}

}  // namespace
}  // namespace penumbra::region
