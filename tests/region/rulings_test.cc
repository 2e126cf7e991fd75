// The memory rulings that the region allocator carries, one by one; the number is in front of each test.
#include <gtest/gtest.h>
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "allocator/region/thread_hint.h"
#include "tests/region/support.h"

namespace penumbra::region {
namespace {

using shadow::first_bad;
using shadow::kNoBadByte;

// A line of /proc/self/status, in KiB.
std::size_t status_kib(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.compare(0, key.size() + 1, key + ":") == 0) return std::stoul(line.substr(key.size() + 1));
  }
  return 0;
}

std::uint64_t kernel_calls() {
  std::uint64_t calls = 0;
  for (std::size_t c = 0; c < os::kMemoryCalls; ++c) calls += os::memory_calls_made(static_cast<os::MemoryCall>(c));
  return calls;
}

// This thread allocates from the given node until further notice.
void stay_on_node(unsigned node) {
  thread_hint.cpu = node;
  thread_hint.uses_left = ~0u;
}

// 1
TEST(Ruling1, NeverAllocatedMemoryIsBadAndFaults) {
  LazyRegions regions;
  const AppAddr a = regions.allocate(kPageSize);
  const AppAddr unused = a + 2 * kPageSize;  // of the same zone, never given out
  EXPECT_FALSE(is_readable(unused));
  EXPECT_EQ(first_bad(unused, 1), unused);
  const AppAddr far = regions->span().end - 8;
  EXPECT_FALSE(is_readable(far));
  EXPECT_EQ(first_bad(far, 8), far);
  EXPECT_EQ(first_bad(a, regions->span().end - a), a + kPageSize);
}

// 1
TEST(Ruling1, QueuedAndRetainedAreasKeepTheirUnitsUntilThePoolsAreEmptied) {
  Config config = LazyRegions::small();
  config.retain = 4 * kMiB;
  config.purge_threshold = 64 * kPageSize;
  LazyRegions regions(config);
  std::vector<AppAddr> areas;
  for (int i = 0; i < 40; ++i) areas.push_back(regions.allocate(kPageSize));
  for (const AppAddr a : areas) {
    a.ptr()[0] = 1;
    regions.free(a);
  }
  while (regions->purge_step()) {
  }
  const Stats stats = regions->stats();
  EXPECT_GT(stats.retained_areas, 0u);
  EXPECT_GT(stats.shadow_pages, 0u);
  for (const AppAddr a : areas) EXPECT_EQ(first_bad(a, 1), a);
  regions->validate();
  regions->purge_all();
  EXPECT_EQ(regions->stats().shadow_pages, 0u);
  EXPECT_EQ(regions->stats().retained_bytes, 0u);
}

// 2
TEST(Ruling2, OpenSpaceGrowsInStepsThatDoNotMultiplyCalls) {
  Config config = LazyRegions::small();
  config.span_bytes = 2048 * kMiB;
  config.nodes = 1;
  LazyRegions regions(config);
  const std::uint64_t protects = os::memory_calls_made(os::MemoryCall::kProtect);
  std::vector<AppAddr> areas;
  for (std::size_t taken = 0; taken < 1024 * kMiB; taken += kMiB) areas.push_back(regions.allocate(kMiB - kPageSize));
  // Steps of 1, 1, 1, 2, ... zones up to 16, then 64 MiB each: 1 GiB in about 24. The paged map opens its 128 MiB of
  // pages by the MiB besides.
  const std::uint64_t for_pages = shadow::is_paged() ? 129 : 0;
  EXPECT_LE(os::memory_calls_made(os::MemoryCall::kProtect) - protects, 32u + for_pages);
  for (const AppAddr a : areas) regions.free(a);
}

// 2
TEST(Ruling2, PurgedSpaceLeavesNoPageTablesForForkToCopy) {
  Config config = LazyRegions::small();
  config.span_bytes = 2048 * kMiB;
  LazyRegions regions(config);
  const std::size_t before = status_kib("VmPTE");
  std::vector<AppAddr> areas;
  for (int i = 0; i < 1000; ++i) areas.push_back(regions.allocate(kMiB - kPageSize));
  EXPECT_GT(status_kib("VmPTE"), before + 1500);  // 2 KiB a MiB
  for (const AppAddr a : areas) regions.free(a);
  regions->purge_all();
  // What stays are the tables over their shadow (125 MiB: 63 or 64 tables, as it lies), over our own tables, and the upper
  // levels; of some 2250 KiB.
  EXPECT_LT(status_kib("VmPTE"), before + 400);
}

// 4
TEST(Ruling4, SixtyFourGiBTakeLessThanOneMiBAndAHandfulOfCalls) {
  Config config = LazyRegions::small();
  config.span_bytes = std::size_t{256} << 30;
  LazyRegions regions(config);
  const std::size_t bytes = std::size_t{64} << 30;
  const std::size_t memory = status_kib("VmRSS") + status_kib("VmPTE");
  const std::uint64_t calls = kernel_calls();
  Request request;
  request.bytes = bytes;
  request.zero = true;
  const AppAddr a = regions->allocate(request);
  ASSERT_FALSE(a.is_null());
  a.ptr()[0] = a.ptr()[bytes - 1] = 1;
  EXPECT_EQ(*(a + bytes / 2).ptr(), 0);
  EXPECT_EQ(first_bad(a + (bytes - 100), 100), kNoBadByte);
  EXPECT_EQ(first_bad(a + (bytes - 100), 101), a + bytes);
  EXPECT_EQ(first_bad(a + bytes / 2, 4 * kMiB), kNoBadByte);
  EXPECT_EQ(regions.free(a), FreeVerdict::kFreed);
  EXPECT_EQ(first_bad(a + bytes / 2, 1), a + bytes / 2);
  EXPECT_FALSE(is_readable(a));
  EXPECT_LE(kernel_calls() - calls, 6u);
  EXPECT_LT(status_kib("VmRSS") + status_kib("VmPTE"), memory + 1024);
  regions->purge_all();
  EXPECT_EQ(regions->stats().shadow_pages, 0u);
}

// 4
TEST(Ruling4, OnlyEdgeUnitsOfALargeAreaArePopulated) {
  LazyRegions regions;
  const AppAddr a = regions.allocate(4 * kMiB + 5);
  EXPECT_EQ(regions->stats().shadow_pages, 1u);
  Request heap;
  heap.bytes = 4 * kMiB + 5;
  heap.kind = AreaKind::kHeapLarge;  // its first unit holds a header and a redzone
  const AppAddr b = regions->allocate(heap);
  EXPECT_EQ(regions->stats().shadow_pages, 3u);
  regions.free(a);
  regions.free(b);
  regions->purge_all();
  EXPECT_EQ(regions->stats().shadow_pages, 0u);
}

// 4: what the program poisoned by hand inside a sparse area must not meet the next user of its addresses.
TEST(Ruling4, PoisonByHandInsideALargeAreaDiesWithIt) {
  LazyRegions regions;
  const AppAddr a = regions.allocate(8 * kMiB);
  shadow::set_bytes(a + 3 * kMiB, 1000, 0xf7);
  EXPECT_EQ(first_bad(a, 8 * kMiB), a + 3 * kMiB);
  regions.free(a);
  regions->purge_all();
  const AppAddr b = regions.allocate(8 * kMiB);
  ASSERT_EQ(a, b);
  EXPECT_EQ(first_bad(b, 8 * kMiB), kNoBadByte);
}

// 5
TEST(Ruling5, ArenaUnitsAreLeftToTheHeapWhichPopulatesThem) {
  LazyRegions regions;
  Request request;
  request.bytes = 8 * kMiB;
  request.alignment = 4 * kMiB;
  request.kind = AreaKind::kArena;
  const AppAddr arena = regions->allocate(request);
  ASSERT_FALSE(arena.is_null());
  EXPECT_EQ(regions->stats().shadow_pages, 0u);
  EXPECT_EQ(first_bad(arena, 8 * kMiB), kNoBadByte);  // beyond what the heap populated nothing is missed on purpose
  EXPECT_EQ(first_bad(arena, 8 * kMiB + 1), arena + 8 * kMiB);
  ASSERT_TRUE(regions->shadow().units().ensure_ready(arena + 100, 40000, shadow::ShadowTag::kHeapNeverAllocated));
  EXPECT_EQ(first_bad(arena, 8 * kMiB), arena);
  EXPECT_EQ(first_bad(arena + 64 * 1024, 1), kNoBadByte);
  regions->validate();
}

// 6: a range is free again while its units still die; the next area there rescues them without refilling.
TEST(Ruling6, ReusedRangeRescuesItsDyingUnits) {
  Config config = LazyRegions::small();
  config.nodes = 1;
  config.shadow_retain = 16 * kMiB;
  config.purge_threshold = kMiB;
  LazyRegions regions(config);
  std::vector<AppAddr> areas;
  for (int i = 0; i < 40; ++i) areas.push_back(regions.allocate(63 * kPageSize));
  for (const AppAddr a : areas) regions.free(a);
  while (regions->purge_step()) {
  }
  // Pools hold twice the threshold; the rest went back to the free tree.
  const Stats before = regions->stats();
  ASSERT_GT(before.shadow_pages_dying, 100u);
  for (int i = 0; i < 10; ++i) ASSERT_FALSE(regions.allocate(100 * kPageSize).is_null());
  const Stats after = regions->stats();
  EXPECT_LT(after.shadow_pages_dying, before.shadow_pages_dying - 65);
  // Ten areas of 13 units: most of them found a hole.
  EXPECT_LT(after.shadow_pages, before.shadow_pages + 65);
  regions->validate();
}

// 8
TEST(Ruling8, OfManyThreadsThatFreeOneAreaExactlyOneWins) {
  LazyRegions regions;
  for (int round = 0; round < 100; ++round) {
    const AppAddr a = regions.allocate(kPageSize * (1 + round % 3));
    std::atomic<int> ready{0};
    std::atomic<int> freed{0};
    std::atomic<int> doubles{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        ready.fetch_add(1);
        while (ready.load() != 3) std::this_thread::yield();
        const FreeVerdict verdict = regions.free(a);
        (verdict == FreeVerdict::kFreed ? freed : doubles).fetch_add(1);
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(freed.load(), 1);
    ASSERT_EQ(doubles.load(), 2);
  }
  regions->validate();
}

// 9
TEST(Ruling9, FreeFromASignalClaimsAtOnceAndIsFinishedLater) {
  LazyRegions regions;
  const AppAddr a = regions.allocate(3 * kPageSize);
  const std::uint64_t calls = kernel_calls();
  regions->free_from_signal(a, 7, {}, AreaKind::kVmalloc);
  EXPECT_EQ(kernel_calls(), calls);
  EXPECT_EQ(first_bad(a, 1), a);               // the first granule, won by the claim
  EXPECT_EQ(first_bad(a + 8, 8), kNoBadByte);  // the rest comes later
  EXPECT_EQ(regions.free(a), FreeVerdict::kDoubleFree);
  regions.free(regions.allocate(kPageSize));
  EXPECT_EQ(first_bad(a + 8, 8), a + 8);
  AreaInfo info;
  ASSERT_TRUE(regions->describe(a, info));
  EXPECT_EQ(info.freed, 7u);
  regions->validate();
}

std::vector<LateFault>* g_late = nullptr;

// 9
TEST(Ruling9, BadFreesFromSignalsAreToldLaterAndPoisonNothing) {
  LazyRegions regions;
  std::vector<LateFault> late;
  g_late = &late;
  regions->set_late_fault_hook([](const LateFault& fault) { g_late->push_back(fault); });
  const AppAddr a = regions.allocate(3 * kPageSize);
  CodeContext context;
  context.pc = 42;
  regions->free_from_signal(a + kPageSize, kNoStack, context, AreaKind::kVmalloc);
  regions->free_from_signal(regions->span().end - kPageSize, kNoStack, context, AreaKind::kVmalloc);
  EXPECT_EQ(first_bad(a, 3 * kPageSize), kNoBadByte);
  EXPECT_TRUE(late.empty());
  regions.free(regions.allocate(kPageSize));
  ASSERT_EQ(late.size(), 2u);
  EXPECT_EQ(late[0].verdict, FreeVerdict::kInterior);
  EXPECT_EQ(late[0].address, a + kPageSize);
  EXPECT_EQ(late[0].context.pc, 42u);
  EXPECT_EQ(late[1].verdict, FreeVerdict::kForeign);
  for (int i = 0; i < 100; ++i) regions->free_from_signal(a + 8, kNoStack, context, AreaKind::kVmalloc);
  EXPECT_EQ(regions->lost_late_faults(), 36u);  // 64 wait
  regions->purge_all();
  EXPECT_EQ(late.size(), 66u);
  g_late = nullptr;
}

std::size_t threads_of_process() {
  return status_kib("Threads");
}

// 10
TEST(Ruling10, PurgeRunsInChunksOnAllocationAndFreeWithoutAThread) {
  Config config = LazyRegions::small();
  config.nodes = 1;
  config.purge_threshold = 2 * kMiB;
  config.purge_chunk = 16;
  LazyRegions regions(config);
  const std::size_t threads = threads_of_process();
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t chunks = regions->stats().purge_chunks;
    const AppAddr a = regions.allocate(kPageSize);
    ASSERT_LE(regions->stats().purge_chunks - chunks, 1u);
    a.ptr()[0] = 1;
    regions.free(a);
    ASSERT_LE(regions->stats().purge_chunks - chunks, 2u);
  }
  EXPECT_GT(regions->stats().purge_passes, 2u);
  // 256 areas wait for a pass; 16 a chunk, and the pass goes on with what comes meanwhile in the next.
  EXPECT_GE(regions->stats().purge_chunks, regions->stats().purge_passes * 15);
  EXPECT_EQ(threads_of_process(), threads);
}

// 10
TEST(Ruling10, ChunkEndsAtFiveHundredTwelvePagesOfMemory) {
  Config config = LazyRegions::small();
  config.nodes = 1;
  config.purge_chunk = 64;
  config.purge_threshold = 16 * kMiB;
  LazyRegions regions(config);
  std::vector<AppAddr> areas;
  for (int i = 0; i < 16; ++i) areas.push_back(regions.allocate(256 * kPageSize));
  for (const AppAddr a : areas) regions.free(a);
  const std::uint64_t chunks = regions->stats().purge_chunks;
  while (regions->purge_step()) {
  }
  EXPECT_GE(regions->stats().purge_chunks - chunks, 8u);  // two of 256 pages each
}

// 11: a request that arrives during a pass begins one more. Only allocations drive the purge here, which they do only
// while somebody's request stands.
TEST(Ruling11, RequestDuringAPassIsNotLost) {
  Config config = LazyRegions::small();
  config.nodes = 2;
  config.purge_threshold = kMiB;
  config.purge_chunk = 1;
  LazyRegions regions(config);
  stay_on_node(0);
  std::vector<AppAddr> first;
  std::vector<AppAddr> second;
  for (int i = 0; i < 201; ++i) first.push_back(regions.allocate(kPageSize));
  stay_on_node(1);
  for (int i = 0; i < 130; ++i) second.push_back(regions.allocate(kPageSize));
  for (const AppAddr a : second) regions.free(a);
  for (int i = 0; i < 8; ++i) regions.allocate(2 * kPageSize);
  const Stats begun = regions->stats();
  ASSERT_EQ(begun.purge_passes, 1u);
  ASSERT_GT(begun.lazy_areas, 100u);  // the pass is in the middle of node 1, and node 0 is behind it
  for (int i = 0; i < 200; ++i) regions->free_from_signal(first[i], kNoStack, {}, AreaKind::kVmalloc);
  regions.free(first[200]);  // queues them all, and asks
  for (int i = 0; i < 600; ++i) regions.allocate(2 * kPageSize);
  EXPECT_GE(regions->stats().purge_passes, 2u);
  EXPECT_LT(regions->stats().lazy_areas, 20u);
}

// 12
TEST(Ruling12, ChunkIsOneFlushAndFewCalls) {
  Config config = LazyRegions::small();
  config.nodes = 1;
  config.purge_threshold = 64 * kMiB;
  LazyRegions regions(config);
  std::vector<AppAddr> areas;
  for (int i = 0; i < 32; ++i) areas.push_back(regions.allocate(kPageSize));
  for (const AppAddr a : areas) {
    a.ptr()[0] = 1;
    regions.free(a);
  }
  const std::uint64_t flushes = regions->stats().flushes;
  const std::uint64_t calls = kernel_calls();
  regions->purge_all();
  EXPECT_EQ(regions->stats().flushes - flushes, 1u);
  EXPECT_GE(regions->stats().flushed_pages, 32u + 8u);
  // Memory, guards, shadow; and the zone that became free.
  EXPECT_LE(kernel_calls() - calls, 5u);
}

int fail_process_madvise(os::MemoryCall call) {
  return call == os::MemoryCall::kProcessAdvise ? EPERM : 0;
}

// 12: without process_madvise on ourselves (Linux < 6.13) each merged range is advised by itself.
TEST(Ruling12, PurgeWorksWithoutProcessMadvise) {
  os::set_failure_injector_test_only(fail_process_madvise);
  {
    LazyRegions regions;
    EXPECT_FALSE(regions->guards().batches());
    std::vector<AppAddr> areas;
    for (int i = 0; i < 200; ++i) areas.push_back(regions.allocate((1 + i % 5) * kPageSize));
    for (std::size_t i = 0; i < areas.size(); i += 2) regions.free(areas[i]);
    regions->purge_all();
    for (std::size_t i = 0; i < areas.size(); i += 2) EXPECT_FALSE(is_readable(areas[i]));
    for (std::size_t i = 1; i < areas.size(); i += 2) EXPECT_TRUE(is_readable(areas[i]));
    regions->validate();
  }
  os::set_failure_injector_test_only(nullptr);
}

// 13
TEST(Ruling13, RetainedMemoryIsBoundedAndZeroedOnRequest) {
  Config config = LazyRegions::small();
  config.nodes = 1;
  config.retain = kMiB;
  config.purge_threshold = 2 * kMiB;
  LazyRegions regions(config);
  for (int round = 0; round < 6; ++round) {
    for (const std::size_t pages : {1u, 3u, 8u}) {
      for (int i = 0; i < 300; ++i) {
        Request request;
        request.bytes = pages * kPageSize;
        request.zero = i % 2 == 0;
        const AppAddr a = regions->allocate(request);
        ASSERT_FALSE(a.is_null());
        if (request.zero) {
          for (std::size_t at = 0; at < request.bytes; at += 512) ASSERT_EQ(a.ptr()[at], 0);
        }
        std::memset(a.ptr(), 0xaa, request.bytes);
        regions.free(a);
        ASSERT_LE(regions->stats().retained_bytes, kMiB);
      }
    }
  }
  EXPECT_GT(regions->stats().retained_bytes, 0u);
  regions->validate();
}

// 13: an allocation from retained memory takes no page fault.
TEST(Ruling13, ReusedRetainedMemoryIsStillThere) {
  Config config = LazyRegions::small();
  config.nodes = 1;
  config.retain = 4 * kMiB;
  config.purge_threshold = kMiB;
  LazyRegions regions(config);
  for (int i = 0; i < 400; ++i) {
    const AppAddr a = regions.allocate(kPageSize);
    a.ptr()[0] = 1;
    regions.free(a);
  }
  int resident = 0;
  for (int i = 0; i < 32; ++i) {
    const AppAddr a = regions.allocate(kPageSize);
    unsigned char in_core = 0;
    ASSERT_EQ(mincore(a.ptr<void>(), kPageSize, &in_core), 0);
    resident += in_core & 1;
  }
  EXPECT_GT(resident, 24);
}

// 13: the budget is for memory; areas of which one page was touched use it up by one page each.
TEST(Ruling13, UntouchedPagesUseUpNoBudget) {
  Config config = LazyRegions::small();
  config.nodes = 1;
  config.retain = kMiB;
  config.purge_threshold = 4 * kMiB;
  LazyRegions regions(config);
  constexpr std::size_t kPages = 32;
  std::uint64_t most = 0;
  for (int i = 0; i < 120; ++i) {
    const AppAddr a = regions.allocate(kPages * kPageSize);
    a.ptr()[0] = 1;
    regions.free(a);
    const Stats stats = regions->stats();
    most = std::max(most, stats.retained_areas);
    ASSERT_EQ(stats.retained_bytes, stats.retained_areas * kPageSize);
  }
  EXPECT_GT(most, kMiB / (kPages * kPageSize));
  regions->validate();
}

// 14
TEST(Ruling14, NodesDoNotShareShadowUnits) {
  LazyRegions regions;
  std::set<std::uintptr_t> units[2];
  for (int i = 0; i < 400; ++i) {
    stay_on_node(static_cast<unsigned>(i % 2));
    const AppAddr a = regions.allocate((1 + i % 9) * kPageSize);
    units[i % 2].insert(a.value / shadow::kUnitSize);
  }
  for (const std::uintptr_t unit : units[0]) EXPECT_EQ(units[1].count(unit), 0u);
}

// 14
TEST(Ruling14, LowestHoleThatFitsIsTaken) {
  Config config = LazyRegions::small();
  config.nodes = 1;
  LazyRegions regions(config);
  std::vector<AppAddr> areas;
  for (int i = 0; i < 20; ++i) areas.push_back(regions.allocate(9 * kPageSize));
  regions.free(areas[15]);
  regions.free(areas[4]);
  regions.free(areas[11]);
  regions->purge_all();
  EXPECT_EQ(regions.allocate(5 * kPageSize), areas[4]);
  EXPECT_EQ(regions.allocate(5 * kPageSize), areas[11]);
}

// 17
TEST(Ruling17, LockedAreaIsDroppedAndClosedAllTheSame) {
  LazyRegions regions;
  const AppAddr a = regions.allocate(8 * kPageSize);
  std::memset(a.ptr(), 1, 8 * kPageSize);
  if (mlock(a.ptr<void>(), 8 * kPageSize) != 0) GTEST_SKIP() << "mlock is not permitted here";
  EXPECT_EQ(regions.free(a), FreeVerdict::kFreed);
  regions->purge_all();
  EXPECT_FALSE(is_readable(a));
  EXPECT_EQ(regions->stats().shadow_pages, 0u);
  EXPECT_EQ(status_kib("VmLck"), 0u);
  regions->validate();
  const AppAddr b = regions.allocate(8 * kPageSize);
  ASSERT_FALSE(b.is_null());
  EXPECT_EQ(b.ptr()[0], 0);
  regions->validate();
}

// 22: a step that the thread is kept from, here by a handler that sleeps, takes no longer for it.
TEST(Ruling22, PurgeStepsAreMeasuredInTheCpuTimeOfTheirThread) {
  static std::atomic<bool> slept{false};
  static std::atomic<std::uint64_t> longest_ns{0};
  static bool slept_inside = false;
  Config config = LazyRegions::small();
  config.flush_cost.base_ns = 40'000'000;  // spent in each flush, of CPU time
  config.flush_cost.cpus = 1;
  config.step_hook = [](std::uint64_t cpu_ns) {
    longest_ns = std::max(longest_ns.load(), cpu_ns);
    slept_inside = slept_inside || slept.load();
  };
  LazyRegions regions(config);
  regions.free(regions.allocate(kPageSize));
  struct sigaction action {};
  action.sa_handler = [](int) {
    const timespec long_enough{2, 0};
    nanosleep(&long_enough, nullptr);
    slept = true;
  };
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGALRM, &action, &before), 0);
  const itimerval soon{{0, 0}, {0, 10'000}};
  ASSERT_EQ(setitimer(ITIMER_REAL, &soon, nullptr), 0);
  while (!slept.load()) {
    regions->purge_all();
    regions.free(regions.allocate(kPageSize));
  }
  ASSERT_EQ(sigaction(SIGALRM, &before, nullptr), 0);
  EXPECT_TRUE(slept_inside);
  EXPECT_GE(longest_ns.load(), config.flush_cost.base_ns);
  EXPECT_LT(longest_ns.load(), 2'000'000'000u);
}

}  // namespace
}  // namespace penumbra::region
