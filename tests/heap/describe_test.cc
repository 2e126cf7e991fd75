// Which object an address belongs to, for every offset around and inside objects of every state.
#include "tests/heap/heap_fixture.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace penumbra::heap {
namespace {

class HeapDescribe : public HeapTest {
 protected:
  static BlockInfo described(const char* p) {
    BlockInfo info;
    EXPECT_TRUE(describe(AppAddr(p), info)) << static_cast<const void*>(p);
    return info;
  }

  static char* allocate_with(std::size_t bytes, StackId stack, std::size_t alignment = 16) {
    Request request;
    request.bytes = bytes;
    request.alignment = alignment;
    request.by = AllocatorName::kNew;
    request.stack = stack;
    return static_cast<char*>(heap::allocate(request));
  }
};

TEST_F(HeapDescribe, EveryByteOfABlockLeadsToItsObject) {
  for (const std::size_t bytes : {0u, 1u, 13u, 100u, 5000u}) {
    char* const p = allocate_with(bytes, 42);
    const std::size_t block_bytes = described(p).block_bytes;
    ASSERT_GE(block_bytes, bytes + 32);
    for (std::size_t i = 0; i < block_bytes; ++i) {
      const BlockInfo info = described(p - 16 + i);
      ASSERT_EQ(info.begin, AppAddr(p)) << bytes << " at " << i;
      ASSERT_EQ(info.bytes, bytes);
      ASSERT_EQ(info.state, BlockState::kLive);
      ASSERT_EQ(info.allocated, 42u);
    }
    release(p);
  }
}

TEST_F(HeapDescribe, TheGapOfAnAlignedObjectBelongsToIt) {
  char* const p = allocate_with(100, 7, 1024);
  for (int i = 1; i <= 32; ++i) EXPECT_EQ(described(p - i).begin, AppAddr(p));
  EXPECT_EQ(described(p + 50).begin, AppAddr(p));
  release(p);
}

// An object's header outlives it where nothing is written over it.
TEST_F(HeapDescribe, TheGapOfAnAlignedObjectInReusedMemoryDoesNotBelongToWhatWasThere) {
  constexpr std::size_t kOld = 50'000;
  std::vector<char*> old;
  for (int i = 0; i < 200; ++i) old.push_back(allocate_with(kOld, 1));
  for (char* const p : old) release(p);
  drain_quarantine();
  // The first of its size begins a page of its own, with nothing young before it. Memory that earlier tests left comes first.
  std::vector<char*> young;
  unsigned inside = 0;
  for (int round = 0; round < 2000 && inside == 0; ++round) {
    for (std::size_t bytes = 100; bytes < 20'000; bytes += bytes / 4) {
      char* const p = allocate_with(bytes, 2, 1024);
      young.push_back(p);
      if (std::ranges::none_of(old, [p](char* o) { return p >= o + 2048 && p < o + kOld; })) continue;
      ++inside;
      for (int i = 1; i <= 32; ++i) ASSERT_EQ(described(p - i).begin, AppAddr(p)) << bytes;
    }
  }
  EXPECT_NE(inside, 0u);
  for (char* const p : young) release(p);
}

TEST_F(HeapDescribe, AFreedObjectTellsBothStacksInQuarantineAndAfterIt) {
  char* const p = allocate_with(100, 11);
  heap::free(p, AllocatorName::kNew, 12);
  for (const bool drained : {false, true}) {
    if (drained) drain_quarantine();
    const BlockInfo info = described(p + 60);
    EXPECT_EQ(info.begin, AppAddr(p));
    EXPECT_EQ(info.bytes, 100u);
    EXPECT_EQ(info.by, AllocatorName::kNew);
    EXPECT_EQ(info.allocated, 11u);
    EXPECT_EQ(info.freed, 12u);
    EXPECT_NE(info.freed_by, 0u);
    EXPECT_EQ(info.state, drained ? BlockState::kFreed : BlockState::kQuarantined);
  }
}

TEST_F(HeapDescribe, ALargeObjectIsFoundFromInsideAndFromItsEdges) {
  char* const p = allocate_with(1u << 20, 21);
  for (const long offset : {-16L, -1L, 0L, 500000L, (1L << 20) - 1, 1L << 20, (1L << 20) + 100}) {
    const BlockInfo info = described(p + offset);
    EXPECT_EQ(info.begin, AppAddr(p)) << offset;
    EXPECT_EQ(info.bytes, 1u << 20) << offset;
    EXPECT_TRUE(info.is_large);
    EXPECT_EQ(info.state, BlockState::kLive);
    EXPECT_EQ(info.by, AllocatorName::kNew);
  }
  heap::free(p, AllocatorName::kNew, 22);
  const BlockInfo info = described(p + 1000);
  EXPECT_EQ(info.begin, AppAddr(p));
  EXPECT_EQ(info.state, BlockState::kFreed);
  EXPECT_EQ(info.freed, 22u);
}

TEST_F(HeapDescribe, AnAddressOfNobodyIsNobodys) {
  BlockInfo info;
  int local = 0;
  EXPECT_FALSE(describe(AppAddr(&local), info));
  EXPECT_FALSE(describe(AppAddr(), info));
  // mimalloc's own segment header, 64 KiB: more than a page from any block, which would be named as a neighbour.
  char* const p = allocate(64);
  const AppAddr segment(round_down(reinterpret_cast<std::uintptr_t>(p), 32u << 20));
  EXPECT_FALSE(describe(segment + 3 * kPageSize, info));
  release(p);
}

}  // namespace
}  // namespace penumbra::heap
