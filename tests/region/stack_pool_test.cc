// The pool of thread stacks (memory ruling 20) without threads: the test says what threads would, and plays the kernel with the word that
// it clears. Shadow is looked at through shadow::first_bad, memory by touching it.
#include "allocator/region/stack_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <thread>
#include <vector>

#include "allocator/region/thread_hint.h"
#include "tests/region/support.h"

namespace penumbra::region {
namespace {

using shadow::first_bad;
using shadow::kNoBadByte;

constexpr std::size_t kStackBytes = 256 << 10;

class StackPoolTest : public testing::Test {
 protected:
  StackPoolTest() {
    EXPECT_TRUE(pool_->init(*regions_));
    thread_hint.cpu = 0;  // one cache throughout
    thread_hint.uses_left = ~0u;
  }
  ~StackPoolTest() override {
    pool_->validate();
    pool_->trim();
    pool_->destroy();
    thread_hint.uses_left = 0;
  }

  Stack* take(std::size_t bytes = kStackBytes, std::size_t guard = kPageSize) {
    Stack* const stack = pool_->take(bytes, guard, kNoStack, 1);
    pool_->validate();
    return stack;
  }
  void give(Stack& stack) {
    pool_->give(stack, kNoStack, 7);
    pool_->validate();
  }
  static void touch(const Stack& stack, std::size_t bytes) {
    std::memset((stack.high() - bytes).ptr<void>(), 1, bytes);
  }
  std::uint8_t shadow_at(AppAddr a) const { return shadow::load_byte(a); }

  LazyRegions regions_;
  std::unique_ptr<StackPool> pool_ = std::make_unique<StackPool>();
};

TEST_F(StackPoolTest, AStackIsAccessibleWholeAndItsGuardsAreNot) {
  for (const std::size_t bytes : {std::size_t{16} << 10, kStackBytes, std::size_t{1} << 20}) {
    for (const std::size_t guard : {kPageSize, 3 * kPageSize, std::size_t{64} << 10, std::size_t{100} << 10}) {
      Stack* const stack = take(bytes, guard);
      ASSERT_NE(stack, nullptr);
      EXPECT_EQ(first_bad(stack->low, bytes), kNoBadByte) << bytes << " " << guard;
      EXPECT_EQ(first_bad(stack->high(), 1), stack->high());
      EXPECT_EQ(shadow_at(stack->low - guard), static_cast<std::uint8_t>(shadow::ShadowTag::kRegionGuard));
      touch(*stack, bytes);
      for (std::size_t below = kPageSize; below <= guard; below += kPageSize) {
        EXPECT_FALSE(os::is_readable(stack->low - below)) << below;
      }
      EXPECT_FALSE(os::is_readable(stack->high()));
      EXPECT_EQ(pool_->at(stack->low), stack);
      EXPECT_EQ(pool_->at(stack->high() - 1), stack);
      EXPECT_EQ(pool_->at(stack->low - guard), stack);
      AreaInfo info;
      ASSERT_TRUE(regions_->describe(stack->low - 1, info));
      EXPECT_EQ(info.kind, AreaKind::kStack);
      EXPECT_EQ(info.begin, stack->low);
      EXPECT_EQ(info.requested, bytes);
      EXPECT_EQ(info.guard_before, guard);
      EXPECT_TRUE(info.in_guard);
      regions_->validate();
      give(*stack);
    }
  }
}

TEST_F(StackPoolTest, AGivenStackIsPoisonedWhereItWasUsedAndCleanWhenItIsTakenAgain) {
  Stack* const stack = take();
  touch(*stack, 3 * kPageSize);
  const AppAddr used = stack->high() - 3 * kPageSize;
  give(*stack);
  for (AppAddr a = used; a < stack->high(); a = a + shadow::kGranuleSize) {
    ASSERT_EQ(shadow_at(a), static_cast<std::uint8_t>(shadow::ShadowTag::kStackGone));
  }
  EXPECT_EQ(shadow_at(used - 1), 0);
  AreaInfo info;
  ASSERT_TRUE(regions_->describe(used, info));
  EXPECT_EQ(info.state, AreaState::kFreed);
  EXPECT_EQ(info.freed_by, 7u);
  Stack* const again = take();
  EXPECT_EQ(again, stack);
  EXPECT_EQ(first_bad(again->low, kStackBytes), kNoBadByte);
  ASSERT_TRUE(regions_->describe(used, info));
  EXPECT_EQ(info.state, AreaState::kLive);
  give(*again);
}

TEST_F(StackPoolTest, TheStackThatWaitedLongestIsTakenFirstAndOnlyForItsOwnSizes) {
  Stack* const first = take();
  Stack* const second = take();
  Stack* const other = take(2 * kStackBytes);
  Stack* const guarded = take(kStackBytes, 2 * kPageSize);
  for (Stack* const stack : {other, guarded, first, second}) give(*stack);
  EXPECT_EQ(take(), first);
  EXPECT_EQ(take(), second);
  Stack* const fresh = take();
  EXPECT_NE(fresh, other);
  EXPECT_NE(fresh, guarded);
  for (Stack* const stack : {first, second, fresh}) give(*stack);
}

using Ruling20 = StackPoolTest;

TEST_F(Ruling20, ADetachedStackIsTakenBackOnlyWhenItsThreadHasEndedAndTheKernelHasLeftIt) {
  std::atomic<std::int32_t> tid{4711};
  Stack* const stack = take();
  pool_->enter(*stack, &tid);
  pool_->detach(*stack);
  pool_->poll();
  EXPECT_EQ(pool_->counts().lent, 1u);  // runs
  pool_->leave(*stack, 4711, stack->high() - kPageSize);
  pool_->poll();
  pool_->poll();
  EXPECT_EQ(pool_->counts().lent, 1u);  // is about to leave it
  tid = 0;
  pool_->poll();
  EXPECT_EQ(pool_->counts().cached, 1u);
  // Detached after it has ended; and not at all.
  Stack* const late = take();
  pool_->enter(*late, &tid);
  pool_->leave(*late, 4711, late->high() - kPageSize);
  pool_->poll();
  EXPECT_EQ(pool_->counts().lent, 1u);  // somebody may still join it
  pool_->detach(*late);
  pool_->poll();
  EXPECT_EQ(pool_->counts().cached, 1u);
}

TEST_F(StackPoolTest, AStackThatUsedMuchOrWasChangedIsFreedAtOnceAndInaccessible) {
  Stack* const deep = take(1 << 20);
  const AppAddr low = deep->low;
  touch(*deep, StackPool::kKept + 4 * kPageSize);
  pool_->leave(*deep, 4711, deep->high() - kPageSize);
  unsigned char in_core[4];
  ASSERT_TRUE(os::in_core(deep->high() - StackPool::kKept - 4 * kPageSize, 4 * kPageSize, in_core).ok());
  for (const unsigned char page : in_core) EXPECT_EQ(page & 1, 0) << "kept by a thread that nobody has joined yet";
  EXPECT_EQ((deep->high() - StackPool::kKept).ptr()[0], 1) << "dropped more than it should";
  give(*deep);
  EXPECT_EQ(pool_->counts().cached, 0u);
  EXPECT_FALSE(os::is_readable(low + (1 << 20) - kPageSize));
  AreaInfo info;
  ASSERT_TRUE(regions_->describe(low, info));
  EXPECT_EQ(info.state, AreaState::kFreed);
  EXPECT_EQ(info.kind, AreaKind::kStack);
  Stack* const changed = take();
  ASSERT_EQ(mprotect(changed->low.ptr<void>(), kPageSize, PROT_NONE), 0);
  pool_->note_change(*changed);
  give(*changed);
  EXPECT_EQ(pool_->counts().cached, 0u);
}

TEST_F(StackPoolTest, AFullCacheGivesUpWhatWaitedLongestAndTrimGivesUpAll) {
  std::vector<Stack*> stacks;
  for (unsigned i = 0; i < StackPool::kPerCpu + 3; ++i) stacks.push_back(take());
  for (Stack* const stack : stacks) give(*stack);
  EXPECT_EQ(pool_->counts().cached, StackPool::kPerCpu);
  pool_->trim();
  EXPECT_EQ(pool_->counts().cached, 0u);
  EXPECT_EQ(pool_->counts().held_bytes, 0u);
  regions_->purge_all();
  EXPECT_EQ(regions_->stats().live_areas, 0u);
  EXPECT_EQ(regions_->stats().shadow_pages, 0u);
}

TEST_F(StackPoolTest, StacksTakeAQuarterOfTheSpanAndNoMore) {
  std::vector<Stack*> stacks;
  while (Stack* const stack = take(1 << 20)) stacks.push_back(stack);
  EXPECT_LE(stacks.size() * ((1u << 20) + kPageSize), regions_->span().bytes() / 4);
  EXPECT_GE(stacks.size(), 15u);
  for (Stack* const stack : stacks) give(*stack);
}

TEST_F(Ruling20, AForkChildLendsTheStacksOfOtherThreadsAgainAsTheyWere) {
  std::atomic<std::int32_t> tid{4711};
  Stack* const own = take();
  Stack* const other = take();
  pool_->enter(*own, &tid);
  pool_->enter(*other, &tid);
  touch(*other, kPageSize);
  pool_->fork_prepare();
  pool_->fork_child(own->high() - kPageSize);
  EXPECT_EQ(pool_->counts().lent, 1u);
  EXPECT_EQ(pool_->counts().abandoned, 1u);
  EXPECT_EQ(first_bad(other->low, kStackBytes), kNoBadByte);
  EXPECT_EQ(take(), other);
  EXPECT_NE(take(), own);
}

TEST_F(StackPoolTest, ThreadsThatTakeAndGiveAtOnceLoseNothing) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      std::atomic<std::int32_t> gone{0};
      for (unsigned i = 0; i < 300; ++i) {
        Stack* const stack = pool_->take(kStackBytes << (i % 2), kPageSize, kNoStack, t + 1);
        if (stack == nullptr) continue;
        ASSERT_EQ(first_bad(stack->low, stack->bytes), kNoBadByte);
        touch(*stack, kPageSize * (1 + i % 5));
        pool_->enter(*stack, &gone);
        if (i % 3 == 0) {
          pool_->detach(*stack);
          pool_->leave(*stack, t + 1, stack->high() - kPageSize);
        } else {
          pool_->give(*stack, kNoStack, t + 1);
        }
        if (i % 50 == 0) pool_->validate();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  pool_->trim();
  EXPECT_EQ(pool_->counts().lent, 0u);
  EXPECT_EQ(pool_->counts().held_bytes, 0u);
  regions_->validate();
}

}  // namespace
}  // namespace penumbra::region
