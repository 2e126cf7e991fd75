// The kernel's semantics, operation by operation, and the race that inc_not_zero is there for.
#include "runtime/base/refcount.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace penumbra {
namespace {

TEST(Refcount, TakenAndGivenBackAsOftenTheLastOneIsTold) {
  Refcount count;
  EXPECT_EQ(count.inc(), RefVerdict::kFine);
  EXPECT_TRUE(count.inc_not_zero().done);
  EXPECT_EQ(count.read(), 3);
  EXPECT_FALSE(count.dec_and_test().done);
  EXPECT_FALSE(count.dec_and_test().done);
  const RefResult last = count.dec_and_test();
  EXPECT_TRUE(last.done);
  EXPECT_EQ(last.verdict, RefVerdict::kFine);
  EXPECT_EQ(count.read(), 0);
}

TEST(Refcount, NobodyTakesAReferenceToWhatIsBeingFreed) {
  Refcount count(0);
  const RefResult taken = count.inc_not_zero();
  EXPECT_FALSE(taken.done);
  EXPECT_EQ(taken.verdict, RefVerdict::kFine);
  EXPECT_EQ(count.read(), 0);
  EXPECT_EQ(count.inc(), RefVerdict::kAdditionOnZero);
  EXPECT_EQ(count.read(), Refcount::kSaturated);
}

TEST(Refcount, GivingBackTooMuchSaturatesInsteadOfFreeing) {
  Refcount count(0);
  const RefResult result = count.dec_and_test();
  EXPECT_FALSE(result.done);
  EXPECT_EQ(result.verdict, RefVerdict::kUnderflow);
  EXPECT_EQ(count.read(), Refcount::kSaturated);
  int refs = 2;
  EXPECT_EQ(Refcount::sub_and_test(refs, 3).verdict, RefVerdict::kUnderflow);
  EXPECT_EQ(refs, Refcount::kSaturated);
}

TEST(Refcount, TooManyReferencesSaturateAndStay) {
  Refcount count(INT_MAX);
  EXPECT_EQ(count.inc(), RefVerdict::kSaturated);
  EXPECT_EQ(count.read(), Refcount::kSaturated);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(count.dec_and_test().done);
    count.inc();
  }
  EXPECT_LT(count.read(), 0);
  int refs = INT_MAX;
  const RefResult taken = Refcount::add_not_zero(refs, 1);
  EXPECT_TRUE(taken.done);
  EXPECT_EQ(taken.verdict, RefVerdict::kSaturated);
  EXPECT_EQ(refs, Refcount::kSaturated);
}

TEST(Refcount, DecrementThatCannotFreeMayNotBeTheLast) {
  int refs = 2;
  EXPECT_EQ(Refcount::dec(refs), RefVerdict::kFine);
  EXPECT_EQ(Refcount::dec(refs), RefVerdict::kDecrementToZero);
  EXPECT_EQ(refs, Refcount::kSaturated);
  refs = 0;
  EXPECT_EQ(Refcount::dec(refs), RefVerdict::kUnderflow);
}

// One object found in a table by one thread while the other gives the last reference back, many times over.
// `take` is how a reference is taken: the number of references to what was gone already.
template <class Take>
int taken_too_late(Take take) {
  int too_late = 0;
  for (int round = 0; round < 3000; ++round) {
    Refcount count(1);
    std::atomic<int> ready{0};
    const auto start_together = [&ready] {
      ready.fetch_add(1);
      while (ready.load() != 2) sched_yield();
    };
    std::thread owner([&] {
      start_together();
      count.dec_and_test();
    });
    start_together();
    if (take(count) == RefVerdict::kAdditionOnZero) ++too_late;
    owner.join();
  }
  return too_late;
}

TEST(Refcount, ReadThenTakeIsARaceThatIsCaught) {
  EXPECT_GT(taken_too_late([](Refcount& count) {
              if (count.read() == 0) return RefVerdict::kFine;
              for (int n = 0; n < 1000 && count.read() != 0; ++n) sched_yield();  // what a preemption does
              return count.inc();
            }),
            0);
}

TEST(Refcount, TakeUnlessZeroIsNoRace) {
  EXPECT_EQ(taken_too_late([](Refcount& count) {
              sched_yield();
              return count.inc_not_zero().verdict;
            }),
            0);
}

}  // namespace
}  // namespace penumbra
