#include "instrument/rewrite/check_emitter_x86_64.h"

#include <bit>

#include "shadow/encoding.h"

namespace penumbra::rewrite {
namespace {

constexpr std::uint8_t kNotEqual = 5;
constexpr std::uint16_t kRedZone = 128;

// Where the value of `r` is while a check runs.
Register in_place(const Check& check, Register r) {
  return r == kRax && check.rax_home != kNoRegister ? check.rax_home : r;
}

}  // namespace

std::uint32_t CheckEmitter::add_accesses(const Check& check, const FunctionPlan& plan) {
  const auto first = static_cast<std::uint32_t>(area_.module.accesses.size());
  for (std::uint32_t n = 0; n < check.access_count; ++n) {
    const CheckedAccess& access = plan.accesses[check.first_access + n];
    const Form& form = program_.form(access.instruction);
    const AccessShape shape = check.is_special ? form.operands[check.operand].shape : AccessShape::kPlain;
    area_.module.accesses.push_back({text_offset(access.instruction), access.displacement, access.size,
                                     static_cast<std::uint8_t>(access.is_write), static_cast<std::uint8_t>(shape)});
  }
  return first;
}

void CheckEmitter::add_check_record(const Check& check, std::uint32_t first_access) {
  ModuleCheck record{};
  record.return_offset = area_.writer.position();
  record.first_access = first_access;
  record.access_count = static_cast<std::uint16_t>(check.access_count);
  record.base = check.base;
  record.index = check.index;
  record.scale = check.scale;
  record.scratch = static_cast<std::uint8_t>(check.scratch);
  record.is_special = check.is_special;
  record.operand = check.operand;
  record.low = check.low;
  area_.module.checks.push_back(record);
}

void CheckEmitter::emit(const Check& check, const FunctionPlan& plan) {
  if (check.is_special) {
    emit_special(check, plan);
  } else {
    emit_plain(check, plan);
  }
}

void CheckEmitter::emit_plain(const Check& check, const FunctionPlan& plan) {
  Writer& writer = area_.writer;
  ModuleState state = plain_state();
  const std::uint32_t at = check.at;
  unsigned pushed = 0;
  const auto push = [&](Register r) {
    writer.put_push(r);
    state.stack_bytes += 8;
    state.pushed[pushed++] = static_cast<std::uint8_t>(r);
    mark(at, state);
  };
  if (check.pushes() && plan.may_use_red_zone) {
    writer.put_red_zone_down();
    state.stack_bytes += kRedZone;
    mark(at, state);
  }
  if (check.pushes_scratch) push(check.scratch);
  if (check.pushes_home) push(check.rax_home);
  if (check.pushes_rax) push(kRax);
  const std::int32_t moved = check.base == kRsp ? state.stack_bytes : 0;
  if (!calls_out_) writer.put_lea(check.scratch, check.base, check.index, check.scale, check.high - 1 + moved);
  if (check.saves_flags) {
    if (check.rax_home != kNoRegister) {
      writer.put_mov(check.rax_home, kRax);
      state.rax_home = static_cast<std::uint8_t>(check.rax_home);
    }
    // lahf and seto change rax only; until both are done the flags are still in place.
    writer.put_lahf_seto();
    state.flags_in_ax = 1;
    mark(at, state);
  }
  if (calls_out_) {
    // The thunk asks the exact question always, not only where the fast path found something.
    PendingThunk thunk{writer.put_jump(), 0, check, add_accesses(check, plan), plan.may_use_red_zone};
    thunk.back = writer.position();
    thunks_.push_back(thunk);
  } else {
    emit_comparisons(check, plan, moved);
  }
  if (check.saves_flags) {
    writer.put_sahf();
    if (check.rax_home != kNoRegister) writer.put_mov(kRax, check.rax_home);
    state.flags_in_ax = 0;
    state.rax_home = kNoPush;
    mark(at, state);
  }
  const auto pop = [&](Register r) {
    writer.put_pop(r);
    state.stack_bytes = static_cast<std::uint16_t>(state.stack_bytes - 8);
    state.pushed[--pushed] = kNoPush;
    mark(at, state);
  };
  if (check.pushes_rax) pop(kRax);
  if (check.pushes_home) pop(check.rax_home);
  if (check.pushes_scratch) pop(check.scratch);
  if (check.pushes() && plan.may_use_red_zone) writer.put_red_zone_up();
}

// The scratch register holds the address of the span's last byte; `moved` is how far rsp is from where the span counts from.
void CheckEmitter::emit_comparisons(const Check& check, const FunctionPlan& plan, std::int32_t moved) {
  Writer& writer = area_.writer;
  writer.put_shift_right_3(check.scratch);
  const unsigned granules = tested_granules(check.low, check.high, check.access_count);
  PendingThunk thunk{0, 0, check, add_accesses(check, plan), plan.may_use_red_zone};
  const std::size_t first = thunks_.size();
  const auto offset = static_cast<std::int32_t>(shadow::kShadowOffset);
  const auto compare = [&](unsigned lowest, unsigned width) {
    writer.put_compare_zero(check.scratch, offset - static_cast<std::int32_t>(lowest - 1), width);
    thunk.jump = writer.put_jump_if(kNotEqual);
    thunks_.push_back(thunk);
  };
  // A comparison wider than the span would look at bytes before it: take two that meet or overlap instead.
  const unsigned width = granules > 8 ? 1 : std::bit_floor(granules);
  if (granules > 8) compare(8, 8);
  if (width != granules && granules <= 8) compare(width, width);
  compare(granules, width);
  if (exact_ && check.high - check.low > 1) {
    // A misaligned span may begin in one granule more.
    writer.put_lea(check.scratch, in_place(check, check.base), in_place(check, check.index), check.scale,
                   check.low + moved);
    writer.put_shift_right_3(check.scratch);
    compare(1, 1);
  }
  for (std::size_t n = first; n < thunks_.size(); ++n) thunks_[n].back = writer.position();
}

void CheckEmitter::emit_thunks() {
  const std::uint32_t begin = area_.writer.position();
  for (const PendingThunk& thunk : thunks_) emit_thunk(thunk);
  thunks_.clear();
  end_of_thunks_ = area_.writer.position();
  area_.module.stats.cold_bytes += end_of_thunks_ - begin;
}

void CheckEmitter::emit_thunk(const PendingThunk& thunk) {
  Writer& writer = area_.writer;
  const Check& check = thunk.check;
  const bool may_use_red_zone = thunk.may_use_red_zone;
  writer.link(thunk.jump, writer.position());
  ModuleState state = plain_state();
  state.is_thunk = 1;
  const bool was_moved = check.pushes() && may_use_red_zone;
  if (was_moved) state.stack_bytes += kRedZone;
  unsigned pushed = 0;
  const auto remember = [&](bool did, Register r) {
    if (!did) return;
    state.stack_bytes += 8;
    state.pushed[pushed++] = static_cast<std::uint8_t>(r);
  };
  remember(check.pushes_scratch, check.scratch);
  remember(check.pushes_home, check.rax_home);
  remember(check.pushes_rax, kRax);
  state.flags_in_ax = check.saves_flags;
  if (check.rax_home != kNoRegister) state.rax_home = static_cast<std::uint8_t>(check.rax_home);
  mark(check.at, state);
  const std::int32_t moved = check.base == kRsp ? state.stack_bytes : 0;
  writer.put_lea(check.scratch, in_place(check, check.base), in_place(check, check.index), check.scale,
                 check.low + moved);
  const bool step = may_use_red_zone && !was_moved;
  if (step) {
    writer.put_red_zone_down();
    state.stack_bytes += kRedZone;
    mark(check.at, state);
  }
  area_.put_call_of_slot(
      check_slot(static_cast<unsigned>(check.scratch), static_cast<unsigned>(check.high - check.low)));
  add_check_record(check, thunk.first_access);
  if (step) {
    writer.put_red_zone_up();
    state.stack_bytes = static_cast<std::uint16_t>(state.stack_bytes - kRedZone);
    mark(check.at, state);
  }
  writer.link(writer.put_jump(), thunk.back);
}

// All registers stay in place; the routine saves what it uses, vector state included.
void CheckEmitter::emit_special(const Check& check, const FunctionPlan& plan) {
  ModuleState state = plain_state();
  if (plan.may_use_red_zone) {
    area_.writer.put_red_zone_down();
    state.stack_bytes += kRedZone;
    mark(check.at, state);
  }
  if (check.saves_flags) {
    area_.writer.put_pushfq();
    state.stack_bytes += 8;
    mark(check.at, state);
  }
  area_.put_call_of_slot(kSpecialSlot);
  Check record = check;
  record.scratch = kRsp;
  const ElementChoice& choice = program_.form(check.at).operands[check.operand].choice;
  record.low = static_cast<std::int32_t>(choice.pack());
  add_check_record(record, add_accesses(check, plan));
  if (check.saves_flags) {
    area_.writer.put_popfq();
    state.stack_bytes = static_cast<std::uint16_t>(state.stack_bytes - 8);
    mark(check.at, state);
  }
  if (plan.may_use_red_zone) area_.writer.put_red_zone_up();
}

// Before the instruction and behind it a routine is called, with nothing left on the stack between them. Behind it the code
// stands for the next instruction: the call has been made. The first routine may return to the second one's call instead,
// when it has made the call itself; the record says how far that is. Where there is no second one, it returns to the end of
// a call that is not there.
CheckEmitter::SystemCall CheckEmitter::emit_before_system_call(const SystemCallSite& site, bool may_use_red_zone) {
  SystemCall call;
  call.access = static_cast<std::uint32_t>(area_.module.accesses.size());
  area_.module.accesses.push_back(
      {text_offset(site.at), site.number, 0, false, static_cast<std::uint8_t>(AccessShape::kKernel)});
  if (site.before) {
    emit_system_hook(kSystemCallSlot, site.at, call.access, may_use_red_zone);
    call.returns_to = area_.module.checks.back().return_offset;
    area_.add_place(text_offset(site.at));
  }
  return call;
}

void CheckEmitter::emit_behind_system_call(const SystemCallSite& site, const SystemCall& call, std::uint32_t next,
                                           bool may_use_red_zone) {
  const auto note_way = [&](std::uint32_t to) {  // both calls find the stack alike
    if (site.before) area_.module.accesses[call.access].size = static_cast<std::uint16_t>(to - call.returns_to);
  };
  if (site.behind) {
    note_way(emit_system_hook(kSystemReturnSlot, next, call.access, may_use_red_zone));
  } else if (!may_use_red_zone) {
    note_way(area_.writer.position());
  } else {
    const std::uint32_t over = area_.writer.put_jump();
    note_way(area_.writer.position());
    ModuleState state = plain_state();
    state.stack_bytes += kRedZone;
    mark(next, state);
    area_.writer.put_red_zone_up();
    area_.writer.link(over, area_.writer.position());
    mark(next, plain_state());
  }
  area_.add_place(text_offset(next));
}

std::uint32_t CheckEmitter::emit_system_hook(unsigned slot, std::uint32_t instruction, std::uint32_t access,
                                             bool may_use_red_zone) {
  ModuleState state = plain_state();
  mark(instruction, state);
  if (may_use_red_zone) {
    area_.writer.put_red_zone_down();
    state.stack_bytes += kRedZone;
    mark(instruction, state);
  }
  const std::uint32_t call = area_.writer.position();
  area_.put_call_of_slot(slot);
  Check record;
  record.is_special = true;
  record.access_count = 1;
  add_check_record(record, access);
  if (may_use_red_zone) {
    area_.writer.put_red_zone_up();
    mark(instruction, plain_state());
  }
  return call;
}

}  // namespace penumbra::rewrite
