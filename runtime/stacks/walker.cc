// Walks a stack: by cached rules where it can, by call frame information where it must, by frame pointers where there
// is none, and always within bounds.
//
// The fast loop knows pc, sp and bp only. A frame whose rule needs another register ends the walk with
// needs_register(); unwind.cc then starts again from our own frame with all registers.
//
// I1  the stack pointer grows with every frame, except over a signal frame, of which at most kMaxSwitches are crossed.
// I2  at most `max` frames are written.
//
// zone: signal-safe
#include "runtime/stacks/walker.h"

#include "runtime/base/config.h"
#include "runtime/stacks/code_modules.h"
#include "runtime/stacks/frame_step.h"
#include "runtime/stacks/rule_cache.h"
#include "runtime/stacks/simple_step.h"
#include "runtime/stacks/stacks.h"

namespace penumbra::stacks {
namespace {

// Signal frames crossed at most: a handler may run on another stack than the code it interrupted, below or above.
constexpr unsigned kMaxSwitches = 8;

// What the bytes before a return address must look like: a call. call rel32, or call r/m64 in its lengths.
bool follows_call(std::uintptr_t return_address, StackMemory& memory) {
  if (!is_code_address(return_address)) return false;
  std::uint8_t before[8];
  if (!memory.read_bytes(return_address - 8, before, sizeof before)) return false;
  if (before[3] == 0xe8) return true;
  const auto is_indirect = [&](unsigned distance) {
    return before[8 - distance] == 0xff && (before[9 - distance] >> 3 & 7) == 2;
  };
  return is_indirect(2) || is_indirect(3) || is_indirect(4) || is_indirect(6) || is_indirect(7);
}

bool to_simple_rule(const CfiEntry& entry, const CfiRow& row, SimpleRule& rule) {
  if (row.rules[kRip].kind == RuleKind::kUndefined) {
    rule = {SimpleRule::Kind::kOutermost, 0, 0};
    return true;
  }
  if (entry.is_signal_frame || row.cfa_is_expression) return false;
  if (row.cfa_register != kRsp && row.cfa_register != kRbp) return false;
  if (row.cfa_value < 8 || row.cfa_value % 8 != 0) return false;
  if (static_cast<std::uint32_t>(row.cfa_value) > RuleCache::kMaxCfaOffset) return false;
  if (row.rules[kRip].kind != RuleKind::kOffset || row.rules[kRip].value != -8) return false;
  if (row.rules[kRsp].kind != RuleKind::kUnspecified) return false;
  const RegisterRule rbp = row.rules[kRbp];
  std::uint32_t slot = 0;
  if (rbp.kind == RuleKind::kOffset) {
    if (rbp.value >= -8 || rbp.value % 8 != 0 || -rbp.value > static_cast<std::int32_t>(RuleCache::kMaxRbpSlot)) {
      return false;
    }
    slot = static_cast<std::uint32_t>(-rbp.value);
  } else if (rbp.kind != RuleKind::kUnspecified && rbp.kind != RuleKind::kSame) {
    return false;
  }
  rule = {row.cfa_register == kRsp ? SimpleRule::Kind::kFromRsp : SimpleRule::Kind::kFromRbp,
          static_cast<std::uint32_t>(row.cfa_value), slot};
  return true;
}

}  // namespace

Walker::Walker(const CodeContext& from, Way way)
    : pc_(from.pc), sp_(from.sp), bp_(from.bp), is_exact_(false), way_(way) {}

Walker::Walker(const Registers& registers, Way way)
    : pc_(registers.value[kRip]),
      sp_(registers.value[kRsp]),
      bp_(registers.value[kRbp]),
      is_exact_(true),
      way_(way),
      registers_(registers) {}

// Goes from a frame without call frame information to its caller, if what lies there looks like a frame.
bool Walker::step_without_cfi() {
  std::uint64_t saved_bp;
  std::uint64_t return_address;
  // A jump to nowhere, or assembly that has not touched the stack yet: the caller's address is on top.
  if (is_exact_ && memory_.read(sp_, return_address) && follows_call(return_address, memory_)) {
    pc_ = return_address;
    sp_ += 8;
    is_exact_ = false;
    registers_.known = 0;
    return true;
  }
  // A record is taken on each malloc and free, and a JIT compiler's program has only such frames: there a frame must lie
  // in the window, and the code at its return address is not looked at, since both would ask the kernel each time.
  const bool is_record = way_ == Way::kByRules;
  if (is_record && bp_ + 16 > memory_.limit()) return false;
  if (bp_ < sp_ || bp_ % 8 != 0 || !memory_.read(bp_, saved_bp) || !memory_.read(bp_ + 8, return_address))
    return false;
  if (saved_bp != 0 && saved_bp <= bp_) return false;
  if (!is_record && !follows_call(return_address, memory_)) return false;
  pc_ = return_address;
  sp_ = bp_ + 16;
  bp_ = saved_bp;
  is_exact_ = false;
  registers_.known = 0;
  return true;
}

StepStatus Walker::step_exactly() {
  const std::uintptr_t lookup = pc_ - (is_exact_ ? 0 : 1);
  const std::uint32_t epoch = module_epoch();
  CodeModule module;
  CfiEntry entry;
  CfiRow row;
  const bool has_module = find_module(lookup, module);
  if (!has_module || !find_entry(module.header, module.frame, lookup, entry)) {
    if (step_without_cfi()) return StepStatus::kOk;
    // A "return address" that is a function's first instruction was put there by whoever built the stack:
    // makecontext() leaves __start_context so. There is no caller.
    return has_module && !is_exact_ && find_entry(module.header, module.frame, pc_, entry) && entry.pc_begin == pc_
               ? StepStatus::kEnd
               : StepStatus::kBroken;
  }
  if (!row_at(entry, lookup, row)) return StepStatus::kBroken;
  SimpleRule rule;
  if (way_ == Way::kByRules && module.is_known && to_simple_rule(entry, row, rule)) {
    RuleCache::store(lookup, rule, epoch);
  }

  if (registers_.known == 0) {
    registers_.set(kRip, pc_);
    registers_.set(kRsp, sp_);
    registers_.set(kRbp, bp_);
  }
  const StepStatus status = step(entry, row, registers_, memory_);
  if (status != StepStatus::kOk) return status;
  if (!entry.is_signal_frame && registers_.value[kRsp] <= sp_) return StepStatus::kBroken;
  if (registers_.value[kRsp] <= sp_ && ++switches_ > kMaxSwitches) return StepStatus::kBroken;
  is_exact_ = entry.is_signal_frame;
  pc_ = registers_.value[kRip];
  sp_ = registers_.value[kRsp];
  bp_ = registers_.has(kRbp) ? registers_.value[kRbp] : 0;
  return StepStatus::kOk;
}

std::size_t Walker::walk(std::uintptr_t* frames, std::size_t max) {
  if (max == 0) return 0;
  std::size_t count = 1;
  frames[0] = pc_;
  // The first frame of a stack that has overflowed lies below what is mapped, its return address does not.
  while (count < max && (memory_.move_to(sp_) || (count == 1 && is_exact_ && way_ == Way::kExactly))) {
    if (way_ == Way::kByRules) {
      const Outcome outcome = follow_rules(frames, count, max);
      if (outcome != Outcome::kNeedsExactStep) return count;
    }
    const StepStatus status = step_exactly();
    if (status == StepStatus::kEnd) return count;
    if (status == StepStatus::kUnknownRegister) needs_register_ = true;
    if (status != StepStatus::kOk) break;
    if (pc_ == 0) return count;  // some start routines end their stack so
    if (!is_code_address(pc_)) break;
    frames[count++] = pc_;
  }
  if (count < max) frames[count++] = kBrokenStack;
  return count;
}

// Frames whose rules are in the cache and whose memory lies in the window. Leaves at the first that is not so.
Walker::Outcome Walker::follow_rules(std::uintptr_t* frames, std::size_t& count, std::size_t max) {
  Place at{pc_, sp_, bp_};
  std::uintptr_t pc_back = is_exact_ ? 0 : 1;
  const std::uintptr_t limit = memory_.limit();
  const std::size_t before = count;
  std::size_t n = count;
  Outcome outcome = Outcome::kFull;
  do {
    std::uintptr_t bp_slot;
    const Link link = follow_rule(at, pc_back, limit, bp_slot);
    if (link != Link::kCaller) {
      outcome = link == Link::kOutermost ? Outcome::kEnd : Outcome::kNeedsExactStep;
      break;
    }
    pc_back = 1;
    frames[n++] = at.pc;
  } while (n < max);
  count = n;
  if (n != before) {
    pc_ = at.pc;
    sp_ = at.sp;
    bp_ = at.bp;
    is_exact_ = false;
    registers_.known = 0;
  }
  return outcome;
}

bool Walker::go_to(const CodeContext& target, std::size_t max_frames) {
  for (std::size_t i = 0; i < max_frames; ++i) {
    if (pc_ == target.pc && sp_ == target.sp) return true;
    if (sp_ > target.sp || !memory_.move_to(sp_) || step_exactly() != StepStatus::kOk) return false;
  }
  return false;
}

bool Walker::leave(bool (*stays)(std::uintptr_t pc), std::size_t max_frames) {
  for (std::size_t i = 0; i < max_frames; ++i) {
    if (!stays(pc_)) return true;
    if (!memory_.move_to(sp_) || step_exactly() != StepStatus::kOk) return false;
  }
  return false;
}

}  // namespace penumbra::stacks
