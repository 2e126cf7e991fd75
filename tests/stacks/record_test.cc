// What record() stores is what unwind() sees, however the stacks before it looked: random call trees, threads, signal
// handlers in between.
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "call_tree.h"
#include "runtime/base/config.h"
#include "runtime/base/options.h"
#include "runtime/stacks/depot.h"
#include "runtime/stacks/stacks.h"
#include "runtime/stacks/trail.h"

#include <gtest/gtest.h>

// made_up_frames.S
extern "C" {
void frame_from_rsp();
void frame_from_rbp();
void outermost_frame();
}

namespace {

using penumbra::kMaxStackFrames;
using penumbra::kNoStack;
using penumbra::StackId;
using penumbra::testing::CallTree;
using namespace penumbra::stacks;

using Stack = std::vector<std::uintptr_t>;

// Random stacks fill the depot of a program, and none may be lost in whatever order tests run.
[[maybe_unused]] const bool g_has_room = (penumbra::process_options().depot = std::uint64_t{1} << 30) != 0;

struct Both {
  Stack recorded;
  Stack unwound;
};

__attribute__((noinline)) Both record_and_unwind(std::size_t depth) {
  const penumbra::CodeContext here = PENUMBRA_CALLER();
  Both both{Stack(kMaxStackFrames), Stack(kMaxStackFrames)};
  both.recorded.resize(depot_get(record(here, depth), both.recorded.data(), kMaxStackFrames));
  both.unwound.resize(unwind(here, both.unwound.data(), depth));
  return both;
}

void check_random_stacks(unsigned seed, std::size_t depth, int steps) {
  CallTree tree(seed, 90, [depth, seed] {
    const Both both = record_and_unwind(depth);
    ASSERT_EQ(both.recorded, both.unwound) << "seed " << seed << ", depth " << depth;
  });
  tree.run(steps);
}

TEST(Record, StoresWhatUnwindSees) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    for (const std::size_t depth : {std::size_t{1}, std::size_t{5}, std::size_t{30}, kMaxStackFrames}) {
      check_random_stacks(seed, depth, 2000);
    }
  }
}

// The same random program again and again: all its stacks come again, mixed with each other, and are known.
TEST(Record, StoresWhatUnwindSeesWhenStacksComeAgain) {
  for (const std::size_t depth : {std::size_t{5}, std::size_t{30}}) {
    for (int round = 0; round < 30; ++round) check_random_stacks(9, depth, 500);
  }
}

TEST(Record, StoresWhatUnwindSeesInThreads) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) threads.emplace_back([t] { check_random_stacks(100 + t, 30, 5000); });
  for (std::thread& thread : threads) thread.join();
}

// More threads, one after the other and at once, than there are trails.
TEST(Record, WorksInMoreThreadsThanHaveATrail) {
  for (int round = 0; round < 2; ++round) {
    std::vector<std::thread> threads;
    std::atomic<bool> go{false};
    for (unsigned t = 0; t < 150; ++t) {
      threads.emplace_back([t, &go] {
        check_random_stacks(200 + t, 12, 20);
        while (!go.load()) usleep(100);
      });
    }
    go.store(true);
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(Record, GivesTheSameIdForTheSameStack) {
  StackId ids[3];
  for (StackId& id : ids) id = record(PENUMBRA_CALLER(), 30);
  EXPECT_NE(ids[0], kNoStack);
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_EQ(ids[1], ids[2]);
  EXPECT_EQ(record(PENUMBRA_CALLER(), 0), kNoStack);
}

// The trail must be what answers here, or the tests above prove nothing about it.
TEST(Record, RepeatsComeFromTheTrail) {
  const penumbra::CodeContext here = PENUMBRA_CALLER();
  StackId id = kNoStack;
  bool from_trail = false;
  for (int i = 0; i < 200 && !from_trail; ++i) {
    record(here, 5);
    from_trail = Trail::try_record(here, 5, id);
  }
  EXPECT_TRUE(from_trail);
  EXPECT_EQ(id, record(here, 5));
}

std::uintptr_t return_into(void (*function)(), std::uintptr_t nops = 1) {
  return reinterpret_cast<std::uintptr_t>(function) + nops;
}

// Two stacks whose inner frames have the same pc, sp and bp, but where a saved rbp points elsewhere: the outer frames
// of the first still lie in memory, and must not be taken for those of the second.
TEST(Record, FollowsASavedFramePointerThatChanged) {
  alignas(4096) static std::uintptr_t stack[512];
  const auto at = [](std::size_t word) { return reinterpret_cast<std::uintptr_t>(&stack[word]); };
  stack[1] = return_into(frame_from_rbp);
  stack[16 + 1] = return_into(outermost_frame, 1);
  stack[64 + 1] = return_into(outermost_frame, 2);
  const penumbra::CodeContext inner{return_into(frame_from_rsp), at(0), 0};
  for (int round = 0; round < 200; ++round) {
    for (const std::size_t outer : {16u, 64u}) {
      stack[0] = at(outer);
      Stack frames(kMaxStackFrames);
      frames.resize(depot_get(record(inner, 30), frames.data(), kMaxStackFrames));
      ASSERT_EQ(frames, (Stack{inner.pc, stack[1], stack[outer + 1]})) << "round " << round;
    }
  }
}

std::atomic<unsigned> g_handled{0};
std::atomic<unsigned> g_wrong{0};

void check_in_handler(int) {
  const penumbra::CodeContext here = PENUMBRA_CALLER();
  std::uintptr_t recorded[kMaxStackFrames];
  std::uintptr_t unwound[kMaxStackFrames];
  const std::size_t recorded_count = depot_get(record(here, 30), recorded, kMaxStackFrames);
  const std::size_t unwound_count = unwind(here, unwound, 30);
  bool same = recorded_count == unwound_count;
  for (std::size_t i = 0; same && i < recorded_count; ++i) same = recorded[i] == unwound[i];
  g_handled.fetch_add(1);
  if (!same) g_wrong.fetch_add(1);
}

// A timer interrupts recording at whatever instruction it happens to be; the handler records too.
TEST(Record, MayBeInterruptedByAHandlerThatRecords) {
  struct sigaction action = {};
  struct sigaction before;
  action.sa_handler = check_in_handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, &before);
  const itimerval often = {{0, 200}, {0, 200}};
  const itimerval never = {};
  setitimer(ITIMER_REAL, &often, nullptr);
  for (unsigned seed = 300; seed < 400 && g_handled.load() < 500; ++seed) check_random_stacks(seed, 30, 2000);
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_GT(g_handled.load(), 20u);
  EXPECT_EQ(g_wrong.load(), 0u);
  validate_depot();
}

}  // namespace
