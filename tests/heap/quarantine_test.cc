// Which of the freed leave first: blocks and large objects that are only numbers here, released into a list.
#include "allocator/heap/quarantine.h"

#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"

#include <gtest/gtest.h>

#include <errno.h>

#include <vector>

namespace penumbra::heap {
namespace {

constexpr std::size_t kLimit = 1 << 20;
constexpr std::size_t kShare = kLimit / 4;

class QuarantineTest : public testing::Test {
 protected:
  void SetUp() override {
    blocks_.clear();
    large_.clear();
    quarantine_.init(
        kLimit, [](void* p) { blocks_.push_back(AppAddr(p).value); },
        [](void* p) { large_.push_back(AppAddr(p).value); });
  }

  void TearDown() override { quarantine_.validate(); }

  void put(std::uintptr_t block, std::size_t bytes) { quarantine_.put(batch_, AppAddr(block), bytes); }

  void put_large(std::uintptr_t object, std::size_t bytes) { quarantine_.put_large(batch_, AppAddr(object), bytes); }

  static inline std::vector<std::uintptr_t> blocks_;
  static inline std::vector<std::uintptr_t> large_;
  Quarantine quarantine_;
  QuarantineBatch batch_;
};

TEST_F(QuarantineTest, LargeObjectsCountWithTheirBytes) {
  put_large(0x10000, 4096);
  put_large(0x20000, 8192);
  EXPECT_EQ(quarantine_.queued_bytes(), 12288u);
  EXPECT_TRUE(large_.empty());
  quarantine_.drain();
  EXPECT_EQ(quarantine_.queued_bytes(), 0u);
  EXPECT_EQ(large_, (std::vector<std::uintptr_t>{0x10000, 0x20000}));
}

TEST_F(QuarantineTest, LargeObjectsFillAQuarterAtMostAndPushNoBlockOut) {
  for (std::uintptr_t i = 1; i <= 64; ++i) put(i << 20, 8192);
  quarantine_.flush(batch_);
  const std::size_t blocks = quarantine_.queued_bytes();
  EXPECT_EQ(blocks, 64u * 8192);
  for (std::uintptr_t i = 1; i <= 100; ++i) {
    put_large(i << 30, kShare / 8);
    EXPECT_LE(quarantine_.queued_bytes(), blocks + kShare);
  }
  EXPECT_TRUE(blocks_.empty());
  ASSERT_EQ(large_.size(), 92u);
  for (std::uintptr_t i = 1; i <= 92; ++i) EXPECT_EQ(large_[i - 1], i << 30) << "the oldest leaves first";
}

TEST_F(QuarantineTest, BlocksUseWhatLargeObjectsLeave) {
  for (std::uintptr_t i = 1; i <= 1000; ++i) put(i << 20, 4096);
  quarantine_.flush(batch_);
  EXPECT_EQ(quarantine_.queued_bytes(), kLimit);
  for (std::uintptr_t i = 1; i <= 4; ++i) put_large(i << 40, kShare / 4);
  EXPECT_EQ(quarantine_.queued_bytes(), kLimit) << "the oldest blocks have made room";
  EXPECT_TRUE(large_.empty());
  ASSERT_FALSE(blocks_.empty());
  EXPECT_EQ(blocks_.front(), std::uintptr_t{1} << 20);
}

TEST_F(QuarantineTest, AnObjectAboveTheShareOfLargeOnesIsGivenBackAtOnceAndAlone) {
  put_large(0x10000, 4096);
  put_large(0x20000, kShare + 4096);
  EXPECT_EQ(large_, std::vector<std::uintptr_t>{0x20000});
  EXPECT_EQ(quarantine_.queued_bytes(), 4096u);
}

TEST_F(QuarantineTest, WithoutAQuarantineNothingWaits) {
  quarantine_.init(
      0, [](void* p) { blocks_.push_back(AppAddr(p).value); }, [](void* p) { large_.push_back(AppAddr(p).value); });
  put(0x10000, 64);
  put_large(0x20000, 4096);
  EXPECT_EQ(blocks_.size() + large_.size(), 2u);
}

constexpr std::uintptr_t kMany = 1'500'000;  // entries: 12 MB of queue

// Small blocks by the million are what a program gets that allocates and frees all the time.
// The children of fork_in_threads.c meet what another thread really was in the middle of.
TEST_F(QuarantineTest, AChildWithoutForkHandlersGivesUpWhatWaitedAndGoesOn) {
  for (std::uintptr_t i = 1; i <= 64; ++i) put(i << 20, 4096);
  quarantine_.flush(batch_);
  put_large(1 << 30, 4096);
  quarantine_.fork_prepare();  // as if a thread that is not in the child held the lock
  quarantine_.abandon_after_fork();
  EXPECT_EQ(quarantine_.queued_bytes(), 0u);
  put(0x100, 4096);
  quarantine_.flush(batch_);
  quarantine_.drain();
  EXPECT_EQ(blocks_, std::vector<std::uintptr_t>{0x100});
  EXPECT_TRUE(large_.empty());
}

TEST_F(QuarantineTest, ALongQueueIsMappedByTheHugePageAndKeepsItsOrder) {
  quarantine_.init(
      std::size_t{1} << 40, [](void* p) { blocks_.push_back(AppAddr(p).value); }, [](void*) {});
  const std::uint64_t before = os::memory_calls_made(os::MemoryCall::kMap);
  for (std::uintptr_t i = 1; i <= kMany; ++i) put(i << 4, 16);
  EXPECT_LE(os::memory_calls_made(os::MemoryCall::kMap) - before, 4 + kMany * 8 / kHugePageSize + 1);
  quarantine_.flush(batch_);
  EXPECT_EQ(quarantine_.queued_bytes(), kMany * 16);
  quarantine_.drain();
  ASSERT_EQ(blocks_.size(), kMany);
  for (std::uintptr_t i = 1; i <= kMany; ++i) ASSERT_EQ(blocks_[i - 1], i << 4);
}

TEST_F(QuarantineTest, WithoutRoomForAHugePageTheQueueGrowsByAFewPages) {
  quarantine_.init(
      std::size_t{1} << 40, [](void* p) { blocks_.push_back(AppAddr(p).value); }, [](void*) {});
  static int calls;
  calls = 0;
  os::set_failure_injector_test_only([](os::MemoryCall call) {
    if (call != os::MemoryCall::kMap) return 0;
    // Four pieces of a few pages, then each huge one is refused.
    return ++calls > 4 && calls % 2 == 1 ? ENOMEM : 0;
  });
  for (std::uintptr_t i = 1; i <= kMany / 10; ++i) put(i << 4, 16);
  os::set_failure_injector_test_only(nullptr);
  EXPECT_GT(calls, 4);
  quarantine_.drain();
  EXPECT_EQ(quarantine_.lost_blocks(), 0u);
  EXPECT_GE(blocks_.size() + kBatchBlocks, kMany / 10);
}

}  // namespace
}  // namespace penumbra::heap
