// Stacks of one thread that came again, each with the words of memory that it was read from.
//
// The trail (trail.h) knows the last stack only; a program that goes back and forth between a hundred places to allocate
// walks the inner frames each time, 6 ns a frame, and looks the stack up in the depot's tables. The unwinder is a function
// of pc, sp, bp and the words it read. So a stack that was recorded once is found by its pc and sp, and is the same if
// those words are: return addresses, and saved bp where a frame farther out is found by it. That takes one load of the
// stack a frame, none depending on another.
//
//     set (of 64, by pc and sp):  4 memos | 4 candidates: ids that missed once
//     memo:  pc sp bp id ... | word word word ...      word = value << 16 | distance from sp / 8
//
// A stack becomes a memo when it misses for the second time and is still a candidate, so that a program with more stacks
// than there is room for pays little.
//
// I1  a memo's words are all that its frames, as far as `depth`, were found by; `reach` covers them all.
// What does not fit (a stack of more than 512 KiB, more words than kWords, values of more than 48 bits) is no memo.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"
#include "runtime/base/stack_id.h"
#include "runtime/stacks/simple_step.h"

namespace penumbra::stacks {

// Frames as the trail keeps them, innermost first: slot[i] is where bp[i + 1] was read from, &bp[i] where bp was kept.
struct KnownFrames {
  const std::uintptr_t* pc = nullptr;
  const std::uintptr_t* sp = nullptr;
  const std::uintptr_t* bp = nullptr;
  const std::uintptr_t* slot = nullptr;
  std::size_t count = 0;
};

// What a stack's name depends on besides memory.
struct RecordTerms {
  std::uint32_t epoch = 0;  // module_epoch()
  std::uint32_t depth = 0;

  bool operator==(const RecordTerms&) const = default;
};

// Belongs to one thread. Zero-filled memory is an empty one.
class StackMemos {
 public:
  // The stack that `from` stands on, if it is known; kNoStack if not. Reads [from.sp, limit) only.
  StackId find(const CodeContext& from, RecordTerms terms, std::uintptr_t limit) const {
    for (const Memo& memo : sets_[set_of(from)].memos) {
      if (memo.pc == from.pc && memo.sp == from.sp && memo.holds(from, terms, limit)) return memo.id;
    }
    return kNoStack;
  }

  // After find() knew nothing: the stack is `id`. Its frames from `from` outwards, as many as its name takes.
  void offer(const CodeContext& from, RecordTerms terms, StackId id, const KnownFrames& frames);

 private:
  static constexpr unsigned kSetBits = 6;
  static constexpr std::size_t kWays = 4;
  static constexpr std::size_t kWords = 50;
  static constexpr unsigned kDistanceBits = 16;
  static constexpr std::uintptr_t kDistanceMask = (std::uintptr_t{1} << kDistanceBits) - 1;

  struct Memo {
    std::uintptr_t pc;  // 0: none
    std::uintptr_t sp;
    std::uintptr_t bp;
    RecordTerms terms;
    StackId id;
    std::uint32_t reach;  // bytes above sp that are read
    std::uint32_t count;  // words
    bool needs_bp;
    std::uintptr_t words[kWords];

    bool holds(const CodeContext& from, RecordTerms now, std::uintptr_t limit) const {
      if (terms != now || reach > limit - sp || (needs_bp && bp != from.bp)) return false;
      std::uintptr_t difference = 0;
      for (std::uint32_t i = 0; i < count; ++i) {
        difference |= load_word(sp + (words[i] & kDistanceMask) * 8) ^ words[i] >> kDistanceBits;
      }
      return difference == 0;
    }

    bool learn(const CodeContext& from, const KnownFrames& frames);
    bool add(std::uintptr_t address, std::uintptr_t value);
  };

  struct Set {
    Memo memos[kWays];
    StackId candidates[kWays];
    std::uint32_t turn;       // the memo that goes next
    std::uint32_t next_turn;  // the candidate that goes next
  };

  static std::size_t set_of(const CodeContext& from) {
    return (from.pc ^ from.sp << 20) * 0x9e3779b97f4a7c15u >> (64 - kSetBits);
  }

  Set sets_[std::size_t{1} << kSetBits];
};

}  // namespace penumbra::stacks
