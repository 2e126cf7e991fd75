// When a stack counts as known: on a made-up stack, word by word.
#include "runtime/stacks/stack_memo.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/stacks/code_modules.h"
#include "runtime/stacks/rule_cache.h"

#include <gtest/gtest.h>

namespace {

using namespace penumbra::stacks;
using penumbra::CodeContext;
using penumbra::kNoStack;

// Four frames. The second one's caller is found by bp, which the first has saved; what the second saved is of no use to
// anybody.
class StackMemo : public testing::Test {
 protected:
  static constexpr std::uintptr_t kPc = 0x10000;
  static constexpr RecordTerms kTerms{7, 30};

  void SetUp() override {
    for (unsigned i = 0; i < 4; ++i) {
      pc_[i] = kPc + 16 * i;
      sp_[i] = at(8 * i);
      bp_[i] = i == 0 ? 5 : i == 1 ? at(20) : 6;
      slot_[i] = reinterpret_cast<std::uintptr_t>(&bp_[i]);
      const auto kind = i == 1 ? SimpleRule::Kind::kFromRbp : SimpleRule::Kind::kFromRsp;
      RuleCache::store(pc_[i] - 1, {kind, 64, 0}, module_epoch());
    }
    slot_[0] = at(2);
    slot_[1] = at(10);
    for (unsigned i = 1; i < 4; ++i) word(sp_[i] - 8) = pc_[i];
    word(slot_[0]) = bp_[1];
    word(slot_[1]) = bp_[2];
  }

  void TearDown() override { RuleCache::clear(); }

  std::uintptr_t at(std::size_t index) const { return reinterpret_cast<std::uintptr_t>(&stack_[index]); }
  static std::uintptr_t& word(std::uintptr_t address) { return *reinterpret_cast<std::uintptr_t*>(address); }
  CodeContext from() const { return {pc_[0], sp_[0], bp_[0]}; }
  void offer(penumbra::StackId id, std::size_t frames = 4) {
    memos_->offer(from(), kTerms, id, {pc_, sp_, bp_, slot_, frames});
  }
  penumbra::StackId find() const { return memos_->find(from(), kTerms, at(64)); }

  alignas(64) std::uintptr_t stack_[64] = {};
  std::uintptr_t pc_[4] = {};
  std::uintptr_t sp_[4] = {};
  std::uintptr_t bp_[4] = {};
  std::uintptr_t slot_[4] = {};
  std::unique_ptr<StackMemos> memos_ = std::make_unique<StackMemos>();
};

TEST_F(StackMemo, IsKnownWhenItCameTwice) {
  EXPECT_EQ(find(), kNoStack);
  offer(42);
  EXPECT_EQ(find(), kNoStack);
  offer(42);
  EXPECT_EQ(find(), 42u);
}

TEST_F(StackMemo, IsAnotherWhenAWordThatItWasFoundByIsAnother) {
  offer(42);
  offer(42);
  for (std::uintptr_t& word : stack_) {
    const auto address = reinterpret_cast<std::uintptr_t>(&word);
    const bool counts =
        address == slot_[0] || address == sp_[1] - 8 || address == sp_[2] - 8 || address == sp_[3] - 8;
    for (const unsigned bit : {0u, 20u, 47u, 48u, 63u}) {
      word ^= std::uintptr_t{1} << bit;
      EXPECT_EQ(find(), counts ? kNoStack : 42u) << (address - at(0)) / 8 << " bit " << bit;
      word ^= std::uintptr_t{1} << bit;
    }
  }
}

TEST_F(StackMemo, IsAnotherAtAnotherPlaceOrOnOtherTerms) {
  offer(42);
  offer(42);
  EXPECT_EQ(memos_->find({pc_[0] + 1, sp_[0], bp_[0]}, kTerms, at(64)), kNoStack);
  EXPECT_EQ(memos_->find({pc_[0], sp_[0] + 8, bp_[0]}, kTerms, at(64)), kNoStack);
  EXPECT_EQ(memos_->find(from(), {8, 30}, at(64)), kNoStack);
  EXPECT_EQ(memos_->find(from(), {7, 29}, at(64)), kNoStack);
  EXPECT_EQ(memos_->find({pc_[0], sp_[0], 1234}, kTerms, at(64)), 42u) << "bp is saved and loaded anew";
}

TEST_F(StackMemo, ReadsNothingAtOrAboveTheLimit) {
  offer(42);
  offer(42);
  EXPECT_EQ(memos_->find(from(), kTerms, sp_[3]), 42u) << "the last word read ends there";
  EXPECT_EQ(memos_->find(from(), kTerms, sp_[3] - 8), kNoStack);
}

TEST_F(StackMemo, NeedsItsOwnBpWhereAFrameIsFoundByIt) {
  slot_[0] = reinterpret_cast<std::uintptr_t>(&bp_[0]);  // kept: the second frame's bp is the first one's
  bp_[0] = bp_[1];
  offer(42);
  offer(42);
  EXPECT_EQ(find(), 42u);
  EXPECT_EQ(memos_->find({pc_[0], sp_[0], bp_[0] + 8}, kTerms, at(64)), kNoStack);
}

TEST_F(StackMemo, TrustsNoRuleThatIsNotCached) {
  RuleCache::clear();
  offer(42);
  offer(42);
  EXPECT_EQ(memos_->find({pc_[0], sp_[0], bp_[0] + 8}, kTerms, at(64)), kNoStack);
  EXPECT_EQ(find(), 42u);
}

TEST_F(StackMemo, IsNotMadeOfWhatDoesNotFit) {
  word(sp_[3] - 8) = pc_[3] = std::uintptr_t{1} << 48;
  offer(42);
  offer(42);
  EXPECT_EQ(find(), kNoStack);
  word(sp_[3] - 8) = pc_[3] = kPc;
  sp_[3] = sp_[0] + (std::uintptr_t{8} << 16) + 8;
  offer(43);
  offer(43);
  EXPECT_EQ(find(), kNoStack);
  std::vector<std::uintptr_t> stack(200, kPc);
  std::vector<std::uintptr_t> sp(60);
  for (std::size_t i = 0; i < sp.size(); ++i) sp[i] = reinterpret_cast<std::uintptr_t>(&stack[i]);
  const std::vector<std::uintptr_t> bp(60);
  std::vector<std::uintptr_t> slot(60);
  for (std::size_t i = 0; i < sp.size(); ++i) slot[i] = reinterpret_cast<std::uintptr_t>(&bp[i]);
  const std::vector<std::uintptr_t> pc(60, kPc);
  const CodeContext deep{kPc, sp[0], 0};
  for (const std::size_t frames : {51u, 52u}) {
    const KnownFrames known{pc.data(), sp.data(), bp.data(), slot.data(), frames};
    const auto id = static_cast<penumbra::StackId>(frames);
    memos_->offer(deep, kTerms, id, known);
    memos_->offer(deep, kTerms, id, known);
    EXPECT_EQ(memos_->find(deep, kTerms, reinterpret_cast<std::uintptr_t>(&stack[200])), frames == 51 ? id : 51u);
  }
}

TEST_F(StackMemo, OfMoreStacksThanThereIsRoomForTheLastStay) {
  for (penumbra::StackId id = 1; id <= 9; ++id) {
    word(sp_[3] - 8) = pc_[3] = kPc + id;
    offer(id);
    offer(id);
    EXPECT_EQ(find(), id);
  }
  for (penumbra::StackId id = 1; id <= 9; ++id) {
    word(sp_[3] - 8) = kPc + id;
    EXPECT_EQ(find(), id <= 5 ? kNoStack : id);
  }
}

}  // namespace
