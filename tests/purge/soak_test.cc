// Allocations, frees (from handlers too), resizes, purges, short-lived threads on stacks of the pool (joined and detached
// ones, which the kernel says are gone), forks and validations at once, for
// PENUMBRA_SOAK_SECONDS (15 where it is not set): no error, bounded growth meanwhile, and nothing left at the end.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "allocator/region/stack_pool.h"
#include "runtime/base/os_linux.h"
#include "tests/purge/support.h"

namespace penumbra::region {
namespace {

// Of the span alone: threads that come and go leave stacks and arenas of malloc elsewhere.
std::size_t count_mappings(const AppRange& span) {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    std::size_t dash = 0;
    const std::uintptr_t begin = std::stoull(line, &dash, 16);
    const std::uintptr_t end = std::stoull(line.substr(dash + 1), nullptr, 16);
    count += begin < span.end.value && span.begin.value < end;
  }
  return count;
}

// One thread's life: `rounds` calls, then all of its areas are freed.
int live(LazyRegions& regions, unsigned seed, int rounds) {
  struct Owned {
    AppAddr at;
    std::size_t bytes;
  };
  std::mt19937 random(seed);
  std::vector<Owned> owned;
  int wrong = 0;
  for (int i = 0; i < rounds; ++i) {
    const unsigned dice = random() % 32;
    if (dice < 16 || owned.empty()) {
      Request request;
      request.bytes = dice == 0 ? 1 + random() % (3 * kMiB) : 1 + random() % (16 * kPageSize);
      request.zero = random() % 2 == 0;
      const AppAddr a = regions->allocate(request);
      if (a.is_null()) continue;
      if (shadow::first_bad(a, request.bytes) != shadow::kNoBadByte) ++wrong;
      if (request.zero && a.ptr()[request.bytes - 1] != 0) ++wrong;
      a.ptr()[0] = a.ptr()[request.bytes - 1] = static_cast<std::uint8_t>(seed);
      owned.push_back({a, request.bytes});
      continue;
    }
    Owned& area = owned[random() % owned.size()];
    if (dice == 31) {
      const std::size_t bytes = 1 + random() % area.bytes;
      std::size_t old = 0;
      if (regions->resize(area.at, bytes, kNoStack, AreaKind::kVmalloc, old) == ResizeVerdict::kResized) {
        area.bytes = bytes;
        area.at.ptr()[bytes - 1] = static_cast<std::uint8_t>(seed);
      }
      continue;
    }
    if (area.at.ptr()[0] != static_cast<std::uint8_t>(seed)) ++wrong;
    if (area.at.ptr()[area.bytes - 1] != static_cast<std::uint8_t>(seed)) ++wrong;
    if (dice == 30) {
      regions->free_from_signal(area.at, kNoStack, {}, AreaKind::kVmalloc);
    } else if (regions.free(area.at) != FreeVerdict::kFreed) {
      ++wrong;
    }
    area = owned.back();
    owned.pop_back();
    if (random() % 1024 == 0) regions->purge_all();
  }
  for (const Owned& area : owned) wrong += regions.free(area.at) != FreeVerdict::kFreed;
  return wrong;
}

struct Life {
  StackPool* pool;
  Stack* stack;
  LazyRegions* regions;
  unsigned seed;
  bool detached;
  int wrong = 0;
  std::atomic<bool> ended{false};
};

void* begin_life(void* argument) {
  Life& life = *static_cast<Life*>(argument);
  std::atomic<std::int32_t>* tid_word = nullptr;
  if (prctl(PR_GET_TID_ADDRESS, &tid_word) != 0) std::abort();
  life.pool->enter(*life.stack, tid_word);
  life.wrong = live(*life.regions, life.seed, 2000);
  life.pool->leave(*life.stack, life.seed, AppAddr(__builtin_frame_address(0)));
  life.ended.store(true, std::memory_order_release);
  return nullptr;
}

// One thread, from its stack to the end of its work.
int run_thread(StackPool& pool, LazyRegions& regions, unsigned seed, bool detached) {
  Stack* const stack = pool.take(64 * kPageSize << seed % 2, kPageSize, kNoStack, seed);
  if (stack == nullptr) return 1;
  if (shadow::first_bad(stack->low, stack->bytes) != shadow::kNoBadByte) return 1;
  if (detached) pool.detach(*stack);
  Life life{&pool, stack, &regions, seed, detached};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack->low.ptr<void>(), stack->bytes);
  if (detached) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, begin_life, &life) != 0) std::abort();
  pthread_attr_destroy(&attributes);
  if (detached) {
    while (!life.ended.load(std::memory_order_acquire)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } else {
    pthread_join(thread, nullptr);
    pool.give(*stack, kNoStack, seed);
  }
  return life.wrong;
}

TEST(Soak, MixedWorkMakesNoErrorGrowsNothingAndLeavesNothing) {
  const char* const wanted = std::getenv("PENUMBRA_SOAK_SECONDS");
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::seconds(wanted != nullptr ? std::atoi(wanted) : 15);
  Config config = LazyRegions::small();
  config.span_bytes = 256 * kMiB;
  config.purge_threshold = 2 * kMiB;
  config.retain = kMiB;
  config.shadow_retain = 32 * kPageSize;
  LazyRegions regions(config);
  const std::size_t mappings = count_mappings(regions->span());
  StackPool pool;
  ASSERT_TRUE(pool.init(*regions));
  std::atomic<int> wrong{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned n = 0; !stop.load(); ++n) {
        // A new thread each time: threads come and go.
        wrong += run_thread(pool, regions, 1 + t + 2 * n, n % 3 == 0);
      }
    });
  }
  std::uint64_t most_shadow = 0;
  std::size_t most_mappings = 0;
  for (int turn = 0; std::chrono::steady_clock::now() < until; ++turn) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    most_shadow = std::max(most_shadow, regions->stats().shadow_pages);
    if (turn % 8 == 0) {
      regions->validate();
      pool.validate();
    }
    if (turn % 8 == 4) {
      most_mappings = std::max(most_mappings, count_mappings(regions->span()));
      pool.fork_prepare();
      regions->fork_prepare();
      const pid_t child = fork();
      if (child == 0) {
        regions->fork_child();
        pool.fork_child(os::thread_pointer());
        alarm(60);
        const int bad = live(regions, 77, 500) + run_thread(pool, regions, 78, false);
        pool.validate();
        pool.trim();
        regions->purge_all();
        regions->validate();
        _exit(bad == 0 ? 0 : 1);
      }
      regions->fork_parent();
      pool.fork_parent();
      int status = -1;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_EQ(status, 0) << "fork in turn " << turn;
    }
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  // The kernel leaves the last detached ones when it comes to it.
  for (int wait = 0; wait < 10000 && pool.counts().lent != 0; ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pool.poll();
  }
  EXPECT_EQ(pool.counts().lent, 0u);
  EXPECT_GT(pool.counts().reused, pool.counts().taken / 4);
  pool.validate();
  pool.trim();
  EXPECT_EQ(pool.counts().held_bytes, 0u);
  // Shadow of what lives or waits: never more than the whole span has. Mappings: zones of two nodes, large areas.
  EXPECT_LE(most_shadow, 256 * kMiB / shadow::kUnitSize);
  EXPECT_LE(most_mappings, mappings + 2 * (256 * kMiB / kZoneSize) + 256);
  regions->purge_all();
  const Stats stats = regions->stats();
  EXPECT_EQ(stats.live_areas + stats.lazy_areas + stats.retained_areas + stats.shadow_pages, 0u);
  EXPECT_EQ(stats.live_bytes + stats.lazy_bytes + stats.retained_bytes, 0u);
  EXPECT_LE(count_mappings(regions->span()), mappings + 16);
  regions->validate();
  pool.destroy();
}

}  // namespace
}  // namespace penumbra::region
