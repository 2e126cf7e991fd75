// The worker (worker=1): it purges instead of the program's threads, is never missed nor in the way, and is gone where
// nobody may be. Waiting in here has no bound but that of a test that failed.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "allocator/region/thread_hint.h"
#include "runtime/base/os_process.h"
#include "tests/purge/support.h"

namespace penumbra::region {
namespace {

// Its thread's folder in /proc, empty where there is none.
std::string find_worker() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name == "penumbra-purge") return task.path();
  }
  return {};
}

std::size_t count_threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

template <class Condition>
bool comes_true(Condition condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    usleep(500);
  }
  return true;
}

// It names itself when it begins to run.
bool is_there() {
  return comes_true([] { return !find_worker().empty(); });
}

// A request that is lost stays lost: the worker does not look again by itself within a test.
Config with_worker() {
  Config config = LazyRegions::small();
  config.nodes = 1;
  config.purge_threshold = kMiB;
  config.worker = true;
  config.worker_idle_ns = 3'600'000'000'000;
  return config;
}

// Reaches the threshold (128 areas of two pages with their guards), not twice it.
void make_due(LazyRegions& regions) {
  free_all(regions, allocate_many(regions, 128));
  regions.free(regions.allocate(kPageSize));  // what the last free asked for is passed on by the next call
}

bool is_purged(LazyRegions& regions) {
  return regions->stats().lazy_bytes < kMiB / 4;
}

// What is due is done by the calls themselves.
bool purges_by_calls(LazyRegions& regions) {
  for (int i = 0; i < 20; ++i) make_due(regions);
  for (int i = 0; i < 50; ++i) regions.free(regions.allocate(kPageSize));
  return is_purged(regions);
}

// Status of a child that ran `body` after a fork with or without the hooks; -1 where it ended by a signal.
template <class Fork, class Body>
int in_child(LazyRegions& regions, bool hooks, Fork make, Body body) {
  if (hooks) regions->fork_prepare();
  const pid_t child = make();
  if (child == 0) {
    alarm(60);
    if (hooks) regions->fork_child();
    _exit(body());
  }
  if (hooks) regions->fork_parent();
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Worker, MakesAllStepsWhileItKeepsUp) {
  LazyRegions regions(with_worker());
  for (int turn = 0; turn < 20; ++turn) {
    make_due(regions);
    ASSERT_TRUE(comes_true([&] { return is_purged(regions); })) << turn;
  }
  const Stats stats = regions->stats();
  EXPECT_GE(stats.purge_passes, 20u);
  EXPECT_GE(stats.worker_chunks, stats.purge_chunks);
  regions->validate();
}

TEST(Worker, IsThereOnlyOnceSomethingIsDue) {
  LazyRegions regions(with_worker());
  free_all(regions, allocate_many(regions, 100));
  EXPECT_EQ(find_worker(), "");
  make_due(regions);
  EXPECT_TRUE(is_there());
}

TEST(Worker, BlocksEverySignal) {
  LazyRegions regions(with_worker());
  make_due(regions);
  ASSERT_TRUE(is_there());
  std::ifstream status(find_worker() + "/status");
  std::string blocked;
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("SigBlk:", 0) == 0) blocked = line.substr(8);
  }
  EXPECT_EQ(blocked, "fffffffffffbfeff");  // all but SIGKILL and SIGSTOP
}

TEST(Worker, IsNoThreadToLibc) {
  const char before = __libc_single_threaded;
  LazyRegions regions(with_worker());
  make_due(regions);
  EXPECT_TRUE(is_there());
  EXPECT_EQ(__libc_single_threaded, before);
}

std::atomic<int> g_sleeps{0};
std::atomic<bool> g_block{false};
std::atomic<LazyRegions*> g_owner{nullptr};
std::vector<AppAddr>* g_late = nullptr;

// W1, after the worker's last step and before it says that it sleeps: nobody wakes it. The frees come from its own thread: any thread would do.
TEST(Worker, RequestBetweenItsLastStepAndItsSleepIsServed) {
  Config config = with_worker();
  g_sleeps = 0;
  config.before_sleep = [] {
    if (g_sleeps.fetch_add(1) != 0) return;
    for (const AppAddr a : *g_late) (*g_owner.load())->free(a, kNoStack);
  };
  LazyRegions regions(config);
  std::vector<AppAddr> late = allocate_many(regions, 140);
  g_late = &late;
  g_owner = &regions;
  make_due(regions);
  EXPECT_TRUE(comes_true([] { return g_sleeps.load() >= 2; }));
  EXPECT_TRUE(is_purged(regions));
}

TEST(Worker, SleeperIsWoken) {
  Config config = with_worker();
  g_sleeps = 0;
  config.before_sleep = [] { g_sleeps.fetch_add(1); };
  LazyRegions regions(config);
  for (int turn = 1; turn <= 5; ++turn) {
    make_due(regions);
    ASSERT_TRUE(comes_true([&] { return g_sleeps.load() >= turn; }));
    usleep(20'000);  // it sleeps by now, or will not fall asleep at all
  }
  EXPECT_TRUE(is_purged(regions));
}

TEST(Worker, FinishesFreesOfSignalHandlers) {
  LazyRegions regions(with_worker());
  make_due(regions);
  ASSERT_TRUE(comes_true([&] { return is_purged(regions); }));
  for (const AppAddr a : allocate_many(regions, 10)) regions->free_from_signal(a, kNoStack, {}, AreaKind::kVmalloc);
  EXPECT_TRUE(comes_true([&] { return regions->stats().live_areas == 0; }));
}

// What it cannot keep up with is everybody's, a step a call; up to there nobody else works.
TEST(Worker, IsHelpedFromThreeThresholdsOn) {
  Config config = with_worker();
  g_sleeps = 0;
  g_block = true;
  config.before_sleep = [] {
    g_sleeps.fetch_add(1);
    while (g_block.load()) os::yield();
  };
  LazyRegions regions(config);
  const std::vector<AppAddr> areas = allocate_many(regions, 600);
  make_due(regions);
  ASSERT_TRUE(comes_true([] { return g_sleeps.load() != 0; }));
  const std::uint64_t chunks = regions->stats().purge_chunks;
  for (std::size_t i = 0; i < 300; ++i) regions.free(areas[i]);
  EXPECT_EQ(regions->stats().purge_chunks, chunks);
  for (std::size_t i = 300; i < 600; ++i) regions.free(areas[i]);
  EXPECT_GT(regions->stats().purge_chunks, chunks);
  g_block = false;
}

TEST(Worker, EndsWhenIdleAndIsStartedAnew) {
  Config config = with_worker();
  config.worker_idle_ns = 1'000'000;
  LazyRegions regions(config);
  for (int turn = 0; turn < 5; ++turn) {
    make_due(regions);
    ASSERT_TRUE(comes_true([&] { return is_purged(regions); }));
    ASSERT_TRUE(comes_true([] { return find_worker().empty(); }));
  }
  regions->validate();
}

// Process ruling 17: a process that must be alone for unshare() is, as far as we are concerned.
TEST(Worker, StandsDownForWhoMustBeAlone) {
  LazyRegions regions(with_worker());
  const int plain = in_child(regions, true, fork, [] { return unshare(CLONE_NEWUSER) == 0 ? 0 : errno; });
  const int status = in_child(regions, true, fork, [&] {
    make_due(regions);
    if (!is_there()) return 101;
    regions->hold_worker();
    if (count_threads() != 1) return 102;
    const int error = unshare(CLONE_NEWUSER) == 0 ? 0 : errno;
    const std::uint64_t by_worker = regions->stats().worker_chunks;
    if (!purges_by_calls(regions)) return 103;
    if (count_threads() != 1 || regions->stats().worker_chunks != by_worker) return 105;
    regions->resume_worker();
    make_due(regions);
    return is_there() ? error : 104;
  });
  EXPECT_EQ(status, plain);
}

TEST(Worker, ForkedChildHasNoneAndStartsItsOwn) {
  LazyRegions regions(with_worker());
  for (int turn = 0; turn < 10; ++turn) {
    make_due(regions);  // it may be in the middle of a step
    const int status = in_child(regions, true, fork, [&] {
      if (count_threads() != 1 || regions->is_worker_serving()) return 1;
      make_due(regions);
      if (!is_there()) return 2;
      // Some may have waited when the child began, so a pass may begin before all is freed: the rest is not due.
      if (!comes_true([&] { return regions->stats().lazy_bytes < kMiB; })) return 3;
      regions->hold_worker();
      regions->validate();
      return 0;
    });
    ASSERT_EQ(status, 0) << turn;
  }
}

// By no hook told: it purges for itself (memory ruling 7).
TEST(Worker, ChildThatSkippedTheHooksStandsWithoutOne) {
  LazyRegions regions(with_worker());
  make_due(regions);
  ASSERT_TRUE(comes_true([&] { return is_purged(regions); }));
  const int status = in_child(
      regions, false, [] { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); },
      [&] {
        if (regions->is_worker_serving()) return 1;
        return purges_by_calls(regions) && count_threads() == 1 ? 0 : 2;
      });
  EXPECT_EQ(status, 0);
}

// By the system call nobody is told (after pthread_exit libc ends the process: tests/e2e/libc/purging_thread.c). It finds
// nothing to do, and ends; with it the process.
TEST(Worker, ProcessEndsWithItsLastOtherThread) {
  Config config = with_worker();
  config.worker_idle_ns = 1'000'000;
  LazyRegions regions(config);
  const int status = in_child(regions, true, fork, [&] {
    make_due(regions);
    syscall(SYS_exit, 0);
    return 2;
  });
  EXPECT_EQ(status, 0);
}

TEST(Worker, SealedProcessStartsNone) {
  LazyRegions regions(with_worker());
  const int status = in_child(regions, true, fork, [&] {
    make_due(regions);
    regions->hold_worker();
    os::getpid();
    os::seal();
    regions->resume_worker();
    return purges_by_calls(regions) && find_worker().empty() ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
}

TEST(Worker, RefusedThreadLeavesThePurgingToCalls) {
  LazyRegions regions(with_worker());
  // The kernel makes no thread in a process whose children are to live in another PID namespace.
  const int status = in_child(regions, true, fork, [&] {
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return 77;
    return purges_by_calls(regions) && find_worker().empty() ? 0 : 1;
  });
  if (status == 77) GTEST_SKIP() << "no namespaces here";
  EXPECT_EQ(status, 0);
}

// P6 beside a worker: threads that find nothing get what was freed.
TEST(Worker, AllocationsInNeedAreServedBesideIt) {
  Config config = with_worker();
  config.span_bytes = 64 * kMiB;
  config.purge_threshold = 8 * kMiB;
  config.purge_chunk = 4;
  LazyRegions regions(config);
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 12; ++turn) {
        std::vector<AppAddr> areas;
        for (int i = 0; i < 20; ++i) areas.push_back(regions.allocate(kMiB));
        for (const AppAddr a : areas) {
          if (a.is_null()) {
            ++failed;
          } else {
            regions.free(a);
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed.load(), 0);
  regions->purge_all();
  EXPECT_EQ(regions->stats().shadow_pages, 0u);
}

// --- helpers ---

constexpr unsigned kNodes = 4;

// What is seen in each memory call of a thread of ours, where nothing of libc may be used.
struct Seen {
  std::atomic<int> threads[32];
  std::atomic<int> count{0};
  std::atomic<int> without_mutex{0};
  std::atomic<int> most_at_once{0};
  std::atomic<int> at_once{0};
  std::atomic<int> unjoined{0};  // steps at whose end somebody was in a call
  int wanted = 1;
  bool helpers_are_slow = false;
};
Seen* g_seen = nullptr;

// Four nodes, and a worker that waits before its first sleep until g_block is false.
Config with_helpers() {
  Config config = with_worker();
  config.nodes = kNodes;
  config.purge_chunk = 8;
  config.span_bytes = 256 * kMiB;
  g_sleeps = 0;
  g_block = true;
  config.before_sleep = [] {
    g_sleeps.fetch_add(1);
    while (g_block.load()) os::yield();
  };
  config.step_hook = [](std::uint64_t) {
    if (Seen* const seen = g_seen) seen->unjoined += seen->at_once != 0;
  };
  return config;
}

// `count` areas of two pages on each node, touched.
std::vector<AppAddr> allocate_on_all_nodes(LazyRegions& regions, int count) {
  std::vector<AppAddr> areas;
  for (unsigned node = 0; node < kNodes; ++node) {
    thread_hint.cpu = node;
    thread_hint.uses_left = ~0u;
    for (const AppAddr a : allocate_many(regions, count)) {
      a.ptr()[0] = 1;
      areas.push_back(a);
    }
  }
  return areas;
}

Mutex* g_mutex = nullptr;
int g_main_thread = 0;

int look_at_call(os::MemoryCall) {
  const int tid = static_cast<int>(os::raw_syscall(SYS_gettid));
  if (tid == g_main_thread) return 0;
  if (g_seen == nullptr) return 0;
  Seen& seen = *g_seen;
  if (!g_mutex->is_locked()) ++seen.without_mutex;
  const int now = ++seen.at_once;
  for (int most = seen.most_at_once; most < now && !seen.most_at_once.compare_exchange_weak(most, now);) {
  }
  const int known = std::min(seen.count.load(), 32);
  bool is_known = false;
  for (int i = 0; i < known; ++i) is_known |= seen.threads[i] == tid;
  if (!is_known) seen.threads[seen.count++ % 32] = tid;
  // Whoever comes first waits for the others, if there are any.
  for (int i = 0; i < 20'000 && seen.most_at_once < seen.wanted; ++i) os::yield();
  if (seen.helpers_are_slow && tid != seen.threads[0]) {
    for (int i = 0; i < 2000; ++i) os::yield();
  }
  --seen.at_once;
  return 0;
}

// Frees `count` areas of each node while the worker cannot purge, lets it go, and waits until all is purged.
void purge_backlog(LazyRegions& regions, int count, Seen& seen) {
  PurgeTestPeer peer(regions);
  g_mutex = &peer.purge_mutex();
  g_seen = &seen;
  g_main_thread = os::gettid();
  const std::vector<AppAddr> areas = allocate_on_all_nodes(regions, count);
  make_due(regions);
  ASSERT_TRUE(comes_true([] { return g_sleeps.load() != 0; }));
  free_all(regions, areas);
  os::set_failure_injector_test_only(look_at_call);
  g_block = false;
  EXPECT_TRUE(comes_true([&] { return is_purged(regions) && g_sleeps.load() > 1; }));
  os::set_failure_injector_test_only(nullptr);
  g_seen = nullptr;
}

// P7. One thread of ours more for each threshold from the second on, at most one for each node.
TEST(WorkerHelpers, PurgeTheNodesOfALargeBacklogSideBySide) {
  LazyRegions regions(with_helpers());
  Seen seen{};
  seen.wanted = 2;
  purge_backlog(regions, 90, seen);  // 2.8 thresholds
  EXPECT_EQ(seen.count.load(), 2);
  EXPECT_EQ(seen.most_at_once.load(), 2);
  regions->hold_worker();
  EXPECT_EQ(count_threads(), 1u);
  regions->validate();
  regions->purge_all();
  EXPECT_EQ(regions->stats().shadow_pages, 0u);
  EXPECT_EQ(regions->stats().lazy_areas + regions->stats().live_areas, 0u);
}

TEST(WorkerHelpers, AreNotThereForASmallBacklog) {
  LazyRegions regions(with_helpers());
  Seen seen{};
  purge_backlog(regions, 40, seen);  // 1.3 thresholds
  EXPECT_EQ(seen.count.load(), 1);
}

// P5 and P7: whatever a helper does, the worker holds the mutex for it and waits.
TEST(WorkerHelpers, AreJoinedBeforeTheStepEnds) {
  for (int turn = 0; turn < 5; ++turn) {
    LazyRegions regions(with_helpers());
    Seen seen{};
    seen.helpers_are_slow = true;
    purge_backlog(regions, 90, seen);
    EXPECT_EQ(seen.without_mutex.load(), 0);
    EXPECT_EQ(seen.unjoined.load(), 0);
    EXPECT_EQ(seen.count.load(), 2);
  }
}

// P1, P3: lanes that a parallel step has left somewhere are finished by anybody's steps before the pass ends.
TEST(WorkerHelpers, LanesAreFinishedByOthersStepsWhenTheWorkerGoes) {
  LazyRegions regions(with_helpers());
  PurgeTestPeer peer(regions);
  const std::vector<AppAddr> areas = allocate_on_all_nodes(regions, 90);
  make_due(regions);
  ASSERT_TRUE(comes_true([] { return g_sleeps.load() != 0; }));
  free_all(regions, areas);
  const std::uint64_t chunks = regions->stats().worker_chunks;
  g_block = false;
  ASSERT_TRUE(comes_true([&] { return regions->stats().worker_chunks > chunks; }));
  regions->hold_worker();
  while (regions->purge_step()) {
  }
  EXPECT_EQ(regions->stats().lazy_areas, 0u);
  EXPECT_EQ(peer.lanes_in_use(), 0u);
  regions->validate();
}

TEST(WorkerHelpers, ForkedChildFinishesTheirLanes) {
  LazyRegions regions(with_helpers());
  const std::vector<AppAddr> areas = allocate_on_all_nodes(regions, 90);
  make_due(regions);
  ASSERT_TRUE(comes_true([] { return g_sleeps.load() != 0; }));
  free_all(regions, areas);
  g_block = false;
  for (int turn = 0; turn < 5; ++turn) {
    const int status = in_child(regions, true, fork, [&] {
      if (count_threads() != 1) return 1;
      regions->purge_all();
      regions->validate();
      return regions->stats().lazy_areas == 0 && regions->stats().shadow_pages == 0 ? 0 : 2;
    });
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace penumbra::region
