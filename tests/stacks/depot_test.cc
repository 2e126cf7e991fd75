// The depot against its promises: one id per stack whoever puts it, the same frames back, nothing for ids that were
// never given out, a bounded budget.
#include "runtime/stacks/depot.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "runtime/base/config.h"
#include "runtime/base/options.h"
#include "runtime/stacks/stacks.h"

#include <gtest/gtest.h>

namespace {

using penumbra::kMaxStackFrames;
using penumbra::kNoStack;
using penumbra::StackId;
using namespace penumbra::stacks;

using Stack = std::vector<std::uintptr_t>;

// The frames of stack number `n`; stacks of different numbers differ.
Stack numbered(std::uint64_t n, std::size_t count) {
  Stack stack(count);
  for (std::size_t i = 0; i < count; ++i) stack[i] = 0x7f0000000000 + (i + 1) * 0x1000 + n * 16;
  return stack;
}

StackId put(const Stack& stack) {
  return depot_put(stack.data(), stack.size());
}

Stack get(StackId id) {
  Stack stack(kMaxStackFrames);
  stack.resize(depot_get(id, stack.data(), stack.size()));
  return stack;
}

TEST(Depot, GivesBackWhatWasPut) {
  for (std::size_t count = 1; count <= kMaxStackFrames; ++count) {
    const Stack stack = numbered(7, count);
    const StackId id = put(stack);
    ASSERT_NE(id, kNoStack);
    EXPECT_EQ(get(id), stack);
  }
}

TEST(Depot, StoresAStackOnce) {
  const Stack stack = numbered(1, 20);
  const StackId id = put(stack);
  const auto before = depot_stats();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(put(stack), id);
  EXPECT_EQ(depot_stats().stacks, before.stacks);
  EXPECT_EQ(depot_stats().used_bytes, before.used_bytes);
}

TEST(Depot, TellsStacksApartByEveryFrame) {
  const Stack stack = numbered(2, 16);
  const StackId id = put(stack);
  for (std::size_t i = 0; i < stack.size(); ++i) {
    Stack other = stack;
    other[i] ^= 8;
    const StackId other_id = put(other);
    EXPECT_NE(other_id, id);
    EXPECT_EQ(get(other_id), other);
  }
  Stack prefix(stack.begin(), stack.end() - 1);
  EXPECT_NE(put(prefix), id);
}

TEST(Depot, CopiesNoMoreThanAskedFor) {
  const Stack stack = numbered(3, 10);
  const StackId id = put(stack);
  std::uintptr_t frames[4] = {0, 0, 0, 0x77};
  EXPECT_EQ(depot_get(id, frames, 3), 3u);
  EXPECT_EQ(frames[2], stack[2]);
  EXPECT_EQ(frames[3], 0x77u);
}

TEST(Depot, AnswersNothingForIdsNeverGivenOut) {
  std::map<StackId, bool> given;
  for (std::uint64_t n = 100; n < 200; ++n) given[put(numbered(n, 5 + n % 20))] = true;
  const auto used = static_cast<StackId>(depot_stats().used_bytes / 8);
  std::uintptr_t frames[kMaxStackFrames];
  std::size_t answered = 0;
  for (StackId id = 0; id < used + 1000; ++id) answered += depot_get(id, frames, kMaxStackFrames) != 0;
  EXPECT_EQ(answered, depot_stats().stacks);
  EXPECT_EQ(depot_get(~StackId{0}, frames, kMaxStackFrames), 0u);
}

TEST(Depot, PutsNothingForAnEmptyStack) {
  EXPECT_EQ(depot_put(nullptr, 0), kNoStack);
  EXPECT_EQ(get(kNoStack).size(), 0u);
}

// Low bits, high bits, position and order must all reach the bucket: 40,000 similar stacks, chains stay short.
TEST(Depot, HashesSpreadSimilarStacks) {
  constexpr std::size_t kBuckets = 1 << 15;
  constexpr std::size_t kStacks = 40000;
  std::vector<unsigned> load(kBuckets);
  std::map<std::uint32_t, int> hashes;
  std::mt19937_64 random(1);
  for (std::size_t n = 0; n < kStacks; ++n) {
    Stack stack = numbered(0, 12);
    // Programs' stacks differ in few frames by small distances.
    stack[random() % 12] += 1 + random() % 64;
    stack[random() % 12] += n;
    const std::uint32_t hash = depot_hash(stack.data(), stack.size());
    ++load[hash % kBuckets];
    ++hashes[hash];
  }
  EXPECT_LE(*std::max_element(load.begin(), load.end()), 12u);
  EXPECT_GE(hashes.size(), kStacks - 60);
}

TEST(Depot, ThreadsThatPutTheSameStacksGetTheSameIds) {
  constexpr int kThreads = 4;
  constexpr std::uint64_t kStacks = 5000;
  std::vector<std::vector<StackId>> ids(kThreads, std::vector<StackId>(kStacks));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&ids, t] {
      for (std::uint64_t n = 0; n < kStacks; ++n) ids[t][n] = put(numbered(100000 + n, 3 + n % 30));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::uint64_t n = 0; n < kStacks; ++n) {
    ASSERT_NE(ids[0][n], kNoStack);
    for (int t = 1; t < kThreads; ++t) ASSERT_EQ(ids[t][n], ids[0][n]) << n;
    ASSERT_EQ(get(ids[0][n]), numbered(100000 + n, 3 + n % 30));
  }
  validate_depot();
}

// Child processes, since a process has one depot.
int run_in_child(int (*body)()) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 200 + WTERMSIG(status);
}

// Equal hashes must not make equal stacks. Among 300,000 stacks some ten pairs share their 32 bits.
TEST(Depot, ComparesFramesWhereHashesAgree) {
  std::map<std::uint32_t, Stack> seen;
  std::mt19937_64 random(3);
  int pairs = 0;
  for (int n = 0; n < 300000; ++n) {
    const Stack stack = {random() >> 17, random() >> 17};
    const auto [there, is_new] = seen.try_emplace(depot_hash(stack.data(), stack.size()), stack);
    if (is_new) continue;
    ++pairs;
    const StackId id = put(stack);
    const StackId other = put(there->second);
    EXPECT_NE(id, other);
    EXPECT_EQ(get(id), stack);
    EXPECT_EQ(get(other), there->second);
  }
  EXPECT_GT(pairs, 0);
}

TEST(Depot, ChildrenOfAForkPutOnTheirOwn) {
  const StackId id = put(numbered(5, 8));
  EXPECT_EQ(run_in_child([] {
              const StackId mine = put(numbered(77777, 8));
              return mine != kNoStack && get(mine) == numbered(77777, 8) && get(put(numbered(5, 8))) == numbered(5, 8)
                         ? 0
                         : 1;
            }),
            0);
  EXPECT_EQ(put(numbered(5, 8)), id);
}

}  // namespace
