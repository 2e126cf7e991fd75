// The pages behind vmap(): placement, verdicts, poison of free pages, and what a forked child may do with
// them.

#include "allocator/region/page_pool.h"

#include "tests/family/family_fixture.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <vector>

namespace penumbra::region {
namespace {

class PagePoolTest : public FamilyTest {
 protected:
  void TearDown() override {
    pool_.trim();
    pool_.validate();
    expect_nothing_left();
    FamilyTest::TearDown();
  }

  PagePool<Regions> pool_{regions_};
};

TEST_F(PagePoolTest, BlocksAreContiguousAlignedAndDisjoint) {
  std::mt19937 random(5);

  struct Block {
    Page* page;
    unsigned order;
  };

  std::vector<Block> blocks;
  std::set<std::uintptr_t> owned;
  for (int step = 0; step < 3000; ++step) {
    if (blocks.size() < 40 || random() % 2 == 0) {
      const unsigned order = random() % 9;
      Page* const page = pool_.allocate(order);
      ASSERT_NE(page, nullptr);
      const AppAddr begin = pool_.address(page);
      const std::size_t bytes = kPageSize << order;
      ASSERT_TRUE(fine(begin, bytes));
      for (std::size_t i = 0; i < bytes; i += kPageSize) ASSERT_TRUE(owned.insert(begin.value + i).second);
      blocks.push_back({page, order});
    } else {
      const std::size_t which = random() % blocks.size();
      const Block block = blocks[which];
      const AppAddr begin = pool_.address(block.page);
      ASSERT_EQ(pool_.free(block.page, block.order), FreeVerdict::kFreed);
      for (std::size_t i = 0; i < kPageSize << block.order; i += kPageSize) owned.erase(begin.value + i);
      blocks[which] = blocks.back();
      blocks.pop_back();
    }
    ASSERT_EQ(pool_.taken_pages(), owned.size());
    if (step % 100 == 0) pool_.validate();
  }
  for (const Block& block : blocks) EXPECT_EQ(pool_.free(block.page, block.order), FreeVerdict::kFreed);
}

TEST_F(PagePoolTest, FreePagesArePoisonedAsFreedPages) {
  Page* const first = pool_.allocate(0);
  Page* const second = pool_.allocate(0);
  const AppAddr begin = pool_.address(first);
  ASSERT_EQ(pool_.address(second), begin + kPageSize);
  EXPECT_TRUE(fine(begin, 2 * kPageSize));
  // Never handed out.
  EXPECT_EQ(shadow::first_bad(begin, 2 * kPageSize + 1), begin + 2 * kPageSize);
  EXPECT_EQ(shadow_at(begin + 2 * kPageSize), code(shadow::ShadowTag::kLargeFreed));
  ASSERT_EQ(pool_.free(first, 0), FreeVerdict::kFreed);
  EXPECT_EQ(shadow::first_bad(begin + 100, 1), begin + 100);
  EXPECT_TRUE(fine(begin + kPageSize, kPageSize));
  EXPECT_TRUE(pool_.address(first).is_null());
  ASSERT_EQ(pool_.free(second, 0), FreeVerdict::kFreed);
}

TEST_F(PagePoolTest, EveryWrongFreeHasItsVerdict) {
  Page* const block = pool_.allocate(2);
  Page unknown;
  EXPECT_EQ(pool_.free(block + 1, 0), FreeVerdict::kInterior);
  EXPECT_EQ(pool_.free(block, 1), FreeVerdict::kInterior);
  EXPECT_EQ(pool_.free(&unknown, 0), FreeVerdict::kForeign);
  EXPECT_EQ(pool_.free(nullptr, 0), FreeVerdict::kForeign);
  EXPECT_EQ(pool_.free(reinterpret_cast<Page*>(reinterpret_cast<char*>(block) + 1), 0), FreeVerdict::kForeign);
  EXPECT_EQ(pool_.free(block, 2), FreeVerdict::kFreed);
  EXPECT_EQ(pool_.free(block, 2), FreeVerdict::kDoubleFree);
}

TEST_F(PagePoolTest, TooLargeAnOrderIsInvalid) {
  errno = 0;
  EXPECT_EQ(pool_.allocate(PagePool<Regions>::kMaxOrder + 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(PagePoolTest, AnAddressLeadsBackToItsPage) {
  Page* const page = pool_.allocate(1);
  const AppAddr begin = pool_.address(page);
  EXPECT_EQ(pool_.page_at(begin + 17), page);
  EXPECT_EQ(pool_.page_at(begin + kPageSize), page + 1);
  EXPECT_EQ(pool_.page_at(begin + 2 * kPageSize), nullptr);
  EXPECT_EQ(pool_.page_at(AppAddr(&page)), nullptr);
  EXPECT_EQ(pool_.free(page, 1), FreeVerdict::kFreed);
}

TEST_F(PagePoolTest, EmptyChunksGoBackExceptOne) {
  std::vector<Page*> chunks;
  for (int i = 0; i < 5; ++i) chunks.push_back(pool_.allocate(PagePool<Regions>::kMaxOrder));
  EXPECT_EQ(regions_.stats().live_areas, 5u);
  for (Page* const page : chunks) EXPECT_EQ(pool_.free(page, PagePool<Regions>::kMaxOrder), FreeVerdict::kFreed);
  EXPECT_EQ(regions_.stats().live_areas, 1u);
  pool_.trim();
  EXPECT_EQ(regions_.stats().live_areas, 0u);
}

TEST_F(PagePoolTest, AnyRefusedCallIsNullAndLeavesNothing) {
  bool reached = true;
  for (std::uint64_t number = 0; reached; ++number) {
    ASSERT_LT(number, 100u);
    CallFailer::arm(number);
    errno = 0;
    Page* const page = pool_.allocate(3);
    const int error = errno;
    reached = CallFailer::disarm();
    if (page != nullptr) {
      EXPECT_EQ(pool_.free(page, 3), FreeVerdict::kFreed);
    } else {
      EXPECT_TRUE(reached);
      EXPECT_EQ(error, ENOMEM);
    }
    pool_.trim();
    pool_.validate();
    regions_.purge_all();
    EXPECT_EQ(regions_.stats().live_areas, 0u);
    EXPECT_EQ(regions_.stats().shadow_pages, regions_.stats().shadow_pinned);
  }
}

TEST_F(PagePoolTest, AForkedChildLeavesTheParentsPagesAlone) {
  Page* const page = pool_.allocate(0);
  const AppAddr begin = pool_.address(page);
  *begin.ptr<volatile int>() = 1;
  pool_.fork_prepare();
  regions_.fork_prepare();
  const pid_t child = fork();
  if (child == 0) {
    regions_.fork_child();
    pool_.fork_child();
    // Same page, still shared; a new one is not from the parent's chunk.
    *begin.ptr<volatile int>() = 2;
    Page* const own = pool_.allocate(0);
    const bool apart = own != nullptr && own != page && pool_.address(own) != begin + kPageSize;
    const bool once = pool_.free(page, 0) == FreeVerdict::kFreed && pool_.free(page, 0) == FreeVerdict::kDoubleFree;
    const bool poisoned = !fine(begin, 1);
    pool_.validate();
    _exit(apart && once && poisoned ? 0 : 1);
  }
  regions_.fork_parent();
  pool_.fork_parent();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(*begin.ptr<volatile int>(), 2);
  EXPECT_TRUE(fine(begin, kPageSize));
  EXPECT_EQ(pool_.free(page, 0), FreeVerdict::kFreed);
}

}  // namespace
}  // namespace penumbra::region
