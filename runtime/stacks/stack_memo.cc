#include "runtime/stacks/stack_memo.h"

#include "runtime/stacks/rule_cache.h"

namespace penumbra::stacks {
namespace {

// Whether the caller of the frame with this return address is found by bp, as far as the cache knows.
bool needs_bp_for_caller(std::uintptr_t pc) {
  const RuleCache::Entry rule = RuleCache::find(pc - 1);
  return !rule.is_hit(pc - 1) || !rule.is_from_rsp();
}

}  // namespace

bool StackMemos::Memo::add(std::uintptr_t address, std::uintptr_t value) {
  const std::uintptr_t distance = (address - sp) / 8;
  if (count == kWords || address < sp || address % 8 != 0 || distance > kDistanceMask ||
      value >> (64 - kDistanceBits) != 0) {
    return false;
  }
  words[count++] = value << kDistanceBits | distance;
  const auto end = static_cast<std::uint32_t>(distance * 8 + 8);
  if (end > reach) reach = end;
  return true;
}

bool StackMemos::Memo::learn(const CodeContext& from, const KnownFrames& frames) {
  pc = from.pc;
  sp = from.sp;
  bp = from.bp;
  count = 0;
  reach = 0;
  needs_bp = false;
  // From the outermost frame inwards: a saved bp counts where a frame farther out is found by it. What lies beyond the
  // last frame has no part in the name.
  bool is_bp_needed = false;
  for (std::size_t i = frames.count - 1; i-- > 0;) {
    const bool is_kept = frames.slot[i] == reinterpret_cast<std::uintptr_t>(&frames.bp[i]);
    if (is_bp_needed && !is_kept && !add(frames.slot[i], frames.bp[i + 1])) return false;
    if (!add(frames.sp[i + 1] - 8, frames.pc[i + 1])) return false;
    is_bp_needed = (is_bp_needed && is_kept) || needs_bp_for_caller(frames.pc[i]);
  }
  needs_bp = is_bp_needed;
  return true;
}

void StackMemos::offer(const CodeContext& from, RecordTerms terms, StackId id, const KnownFrames& frames) {
  if (id == kNoStack || frames.count == 0) return;
  Set& set = sets_[set_of(from)];
  bool is_candidate = false;
  for (StackId& candidate : set.candidates) {
    if (candidate != id) continue;
    is_candidate = true;
    candidate = kNoStack;
    break;
  }
  if (!is_candidate) {
    set.candidates[set.next_turn++ % kWays] = id;
    return;
  }
  Memo& memo = set.memos[set.turn++ % kWays];
  memo.pc = 0;
  if (!memo.learn(from, frames)) {
    memo.pc = 0;
    return;
  }
  memo.terms = terms;
  memo.id = id;
}

}  // namespace penumbra::stacks
