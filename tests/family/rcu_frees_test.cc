// kvfree_rcu() over a provider that this file drives by hand: nothing is freed before the grace period, all
// of it after.

#include "allocator/region/rcu_frees.h"

#include "tests/family/family_fixture.h"

#include <vector>

namespace penumbra::region {
namespace {

struct Callback {
  void* head;
  void (*function)(void* head);
};

std::vector<Callback> g_queued;
int g_waits = 0;
Regions* g_regions = nullptr;
FreeVerdict g_verdict = FreeVerdict::kFreed;

void call_rcu(void* head, void (*function)(void* head)) {
  g_queued.push_back({head, function});
}

void synchronize_rcu() {
  ++g_waits;
}

void end_grace_period() {
  std::vector<Callback> due;
  due.swap(g_queued);
  for (const Callback& callback : due) callback.function(callback.head);
}

class RcuFreesTest : public FamilyTest {
 protected:
  void SetUp() override {
    FamilyTest::SetUp();
    g_regions = &regions_;
    g_queued.clear();
    g_waits = 0;
    rcu_init({[](AppAddr object) { g_verdict = g_regions->free(object, kNoStack); },
              [](AppAddr inside) {
                AreaInfo info;
                return g_regions->describe(inside, info) ? info.begin : AppAddr();
              }});
    rcu_set_provider({call_rcu, synchronize_rcu});
  }

  void TearDown() override {
    rcu_set_provider({});
    expect_nothing_left();
    FamilyTest::TearDown();
  }

  AppAddr allocate() { return regions_.allocate({.bytes = 3000}); }
};

TEST_F(RcuFreesTest, WithoutAProviderNothingIsFreed) {
  rcu_set_provider({});
  EXPECT_FALSE(rcu_has_provider());
  const AppAddr object = allocate();
  EXPECT_EQ(rcu_free_later(object), ENOSYS);
  EXPECT_EQ(rcu_free_later_by_head(object.ptr<void>()), ENOSYS);
  EXPECT_TRUE(fine(object, 3000));
  EXPECT_EQ(regions_.free(object, kNoStack), FreeVerdict::kFreed);
}

TEST_F(RcuFreesTest, BothFormsKeepTheObjectUntilTheGracePeriodEnds) {
  const AppAddr plain = allocate();
  const AppAddr with_head = allocate();
  EXPECT_EQ(rcu_free_later(plain), 0);
  EXPECT_EQ(rcu_free_later_by_head((with_head + 40).ptr<void>()), 0);
  EXPECT_EQ(g_queued.back().head, (with_head + 40).ptr<void>()) << "the object waits by its own head";
  EXPECT_TRUE(fine(plain, 3000));
  EXPECT_TRUE(fine(with_head, 3000));
  end_grace_period();
  EXPECT_FALSE(fine(plain, 1));
  EXPECT_FALSE(fine(with_head, 1));
  EXPECT_EQ(regions_.stats().live_areas, 0u);
  EXPECT_EQ(g_waits, 0);
}

TEST_F(RcuFreesTest, WithoutMemoryForANodeTheCallerWaits) {
  // Nodes are had by the page: use up what earlier tests left.
  std::vector<AppAddr> objects;
  os::set_failure_injector_test_only(nullptr);
  for (int i = 0; i < 400; ++i) objects.push_back(allocate());
  os::set_failure_injector_test_only([](os::MemoryCall) { return ENOMEM; });
  for (const AppAddr object : objects) {
    EXPECT_EQ(rcu_free_later(object), 0);
    EXPECT_EQ(fine(object, 1), g_waits == 0) << "freed at once only after waiting";
    if (g_waits != 0) break;
  }
  os::set_failure_injector_test_only(nullptr);
  EXPECT_EQ(g_waits, 1);
  end_grace_period();
  for (const AppAddr object : objects) {
    if (regions_.requested_bytes(object) != 0) regions_.free(object, kNoStack);
  }
}

TEST_F(RcuFreesTest, AnObjectFreedMeanwhileIsADoubleFreeWhenDue) {
  const AppAddr plain = allocate();
  EXPECT_EQ(rcu_free_later(plain), 0);
  EXPECT_EQ(regions_.free(plain, kNoStack), FreeVerdict::kFreed);
  end_grace_period();
  EXPECT_EQ(g_verdict, FreeVerdict::kDoubleFree);
}

TEST_F(RcuFreesTest, ManyObjectsReuseTheirNodes) {
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 100; ++i) ASSERT_EQ(rcu_free_later(allocate()), 0);
    end_grace_period();
  }
  const std::uint64_t before = os::memory_calls_made(os::MemoryCall::kMap);
  std::vector<AppAddr> objects;
  for (int i = 0; i < 100; ++i) objects.push_back(allocate());
  const std::uint64_t own = os::memory_calls_made(os::MemoryCall::kMap) - before;
  for (const AppAddr object : objects) ASSERT_EQ(rcu_free_later(object), 0);
  EXPECT_EQ(os::memory_calls_made(os::MemoryCall::kMap) - before, own) << "nodes were mapped anew";
  end_grace_period();
}

}  // namespace
}  // namespace penumbra::region
