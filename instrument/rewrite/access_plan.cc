#include "instrument/rewrite/access_plan.h"

#include <algorithm>
#include <bit>
#include <span>

#include "instrument/rewrite/libc_roles.h"
#include "runtime/base/system_calls.h"
#include "shadow/encoding.h"

namespace penumbra::rewrite {
namespace {

// Instructions at the begin of a function among which the frame pointer is set up.
constexpr std::uint32_t kPrologue = 12;

Register lowest(RegSet set) {
  return static_cast<Register>(std::countr_zero(set));
}

// Does an instruction that has to do with rsp use it only to push, pop, return, open or close a frame, or to name a place
// at or above it? Then no other register learns where the stack is.
bool uses_stack_plainly(const Form& form, std::span<const std::uint8_t> bytes) {
  std::size_t at = 0;
  while (at < bytes.size() && (bytes[at] == 0x66 || bytes[at] == 0xf2 || bytes[at] == 0xf3)) ++at;
  if (at < bytes.size() && (bytes[at] & 0xf0) == 0x40) ++at;
  if (at >= bytes.size()) return false;
  const std::uint8_t opcode = bytes[at];
  if (opcode >= 0x50 && opcode <= 0x5f) return opcode != 0x54 && opcode != 0x5c;  // push, pop of another than rsp
  if (opcode == 0x68 || opcode == 0x6a || form.flow == Flow::kReturn) return true;
  if (at + 1 >= bytes.size()) return false;
  const std::uint8_t modrm = bytes[at + 1];
  if (opcode == 0x81 || opcode == 0x83) {
    if (modrm == 0xec || modrm == 0xc4) return true;  // sub rsp, n and add rsp, n
  }
  const bool is_move = opcode == 0x8b || opcode == 0x89 || opcode == 0xc7;
  const bool names_rsp = opcode != 0xc7 && (modrm >> 3 & 7) == 4;  // or r12: then it is one too many
  return is_move && !names_rsp && form.operand_count == 1 && form.operands[0].base == kRsp &&
         form.operands[0].index == kNoRegister && displacement(form, bytes) >= 0;
}

// What a check at one place would cost, in steps; lower is better.
struct Price {
  unsigned cost = ~0u;
  Check how;
};

}  // namespace

const char* disposition_name(Disposition d) {
  switch (d) {
    case Disposition::kChecked: return "checked";
    case Disposition::kMerged: return "merged into an earlier check of its block";
    case Disposition::kImplied: return "implied by checks on every path";
    case Disposition::kSpecial: return "checked by a routine for its shape";
    case Disposition::kStackSlot: return "stack slot at rsp";
    case Disposition::kFrameSlot: return "frame slot at rbp";
    case Disposition::kAbsolute: return "global at a constant address";
    case Disposition::kThreadLocal: return "thread-local (fs or gs)";
    case Disposition::kShadow: return "the compiler's own check";
    case Disposition::kNotWanted: return "left out by an option";
    case Disposition::kNoCode: return "in a function that is not rewritten";
    case Disposition::kReplaced: return "in a string function that a range-checked version goes before";
  }
  return "?";
}

AccessPlanner::AccessPlanner(const Program& program, const Liveness& liveness, const AccessOptions& options)
    : program_(program), liveness_(liveness), options_(options) {}

// rbp is a frame pointer where the prologue copies rsp to it and nothing but that, leave and pop changes it.
bool AccessPlanner::has_frame_pointer(const Function& function) const {
  bool copied = false;
  for (std::uint32_t k = 0; k < function.count; ++k) {
    const std::uint32_t i = function.first + k;
    const Form& form = program_.form(i);
    if ((form.touches & reg(kRbp)) == 0) continue;
    const auto bytes = program_.bytes(i);
    const bool is_copy = bytes.size() == 3 && bytes[0] == 0x48 &&
                         ((bytes[1] == 0x89 && bytes[2] == 0xe5) || (bytes[1] == 0x8b && bytes[2] == 0xec));
    const bool is_leave_or_pop = bytes.size() == 1 && (bytes[0] == 0xc9 || bytes[0] == 0x5d);
    if (is_copy && k < kPrologue) {
      copied = true;
    } else if (!is_leave_or_pop) {
      return false;
    }
  }
  return copied;
}

// Compilers use the red zone in leaves only; a callee would overwrite it. A leaf uses it only if it names a place below
// rsp, by rsp itself or by a copy of rsp. Its parts elsewhere may have done so where control comes to its middle from them
// or goes to theirs.
bool AccessPlanner::may_use_red_zone(const Function& function) const {
  bool calls = false;
  bool keeps_above = true;
  for (std::uint32_t i = function.first; i < function.first + function.count; ++i) {
    const Form& form = program_.form(i);
    calls |= form.flow == Flow::kCall || form.flow == Flow::kIndirectCall;
    if (form.operand_count != 0 && form.operands[0].base == kRsp && displacement(form, program_.bytes(i)) < 0)
      return true;
    if (((form.reads | form.touches) & reg(kRsp)) != 0) keeps_above &= uses_stack_plainly(form, program_.bytes(i));
  }
  if (calls) return false;
  if (!keeps_above) return true;
  for (std::uint32_t k = 0; k < function.block_count; ++k) {
    const Block& block = program_.blocks()[function.first_block + k];
    if (k != 0 && (block.entry & kEntryJump) != 0) return true;
    for (const std::uint32_t to : program_.successors(block)) {
      const Function& other = program_.functions()[program_.blocks()[to].function];
      if (&other != &function && to != other.first_block) return true;
    }
  }
  return false;
}

Disposition AccessPlanner::classify(std::uint32_t instruction, std::uint8_t operand, bool has_frame_pointer) const {
  const Form& form = program_.form(instruction);
  const MemoryOperand& m = form.operands[operand];
  if (m.segment != 0) return Disposition::kThreadLocal;
  if (m.base == kRip || (m.base == kNoRegister && m.index == kNoRegister)) return Disposition::kAbsolute;
  const std::int64_t distance = m.has_displacement ? displacement(form, program_.bytes(instruction)) : 0;
  if (distance == static_cast<std::int64_t>(shadow::kShadowOffset)) return Disposition::kShadow;
  if (m.base == kRsp && m.index == kNoRegister) return Disposition::kStackSlot;
  if (has_frame_pointer && m.base == kRbp && m.index == kNoRegister) return Disposition::kFrameSlot;
  if (!(m.is_read && options_.reads) && !(m.is_write && options_.writes)) return Disposition::kNotWanted;
  // A string instruction without rep is one element at rsi or rdi.
  const bool is_plain = m.shape == AccessShape::kPlain || (m.shape == AccessShape::kString && !form.has_rep);
  return is_plain && m.size <= kMaxSpan ? Disposition::kChecked : Disposition::kSpecial;
}

FunctionPlan AccessPlanner::plan(std::uint32_t number) {
  const Function& function = program_.functions()[number];
  FunctionPlan plan;
  plan.block_has_check.resize(function.block_count);
  plan.may_use_red_zone = may_use_red_zone(function);
  const bool frame_pointer = has_frame_pointer(function);
  for (std::uint32_t k = 0; k < function.block_count; ++k) {
    const std::size_t before = plan.checks.size();
    plan_block(function.first_block + k, frame_pointer, plan);
    const std::size_t calls_before = plan.system_calls.size();
    if (options_.system_calls) plan_system_calls(function.first_block + k, plan);
    plan.block_has_check[k] = plan.checks.size() != before || plan.system_calls.size() != calls_before;
  }
  std::ranges::stable_sort(plan.checks, {}, &Check::at);
  return plan;
}

FunctionPlan AccessPlanner::plan_without_checks(std::uint32_t number) {
  const Function& function = program_.functions()[number];
  FunctionPlan plan;
  plan.block_has_check.resize(function.block_count);
  for (std::uint32_t i = function.first; i < function.first + function.count; ++i) {
    ledger_.counts[static_cast<std::size_t>(Disposition::kReplaced)] += program_.form(i).operand_count;
  }
  return plan;
}

void AccessPlanner::plan_system_calls(std::uint32_t number, FunctionPlan& plan) const {
  const Block& block = program_.blocks()[number];
  for (std::uint32_t i = block.first; i < block.first + block.count; ++i) {
    if (!is_system_call(program_.form(i), program_.bytes(i))) continue;
    SystemCallSite site{i, system_call_number(program_, i), true};
    if (site.number >= 0) {
      const SystemCall* const call = find_system_call(site.number);
      if (call == nullptr) continue;
      site.before = call->is_seen_before();
      site.behind = call->is_seen_behind();
    }
    plan.system_calls.push_back(site);
  }
}

void AccessPlanner::plan_block(std::uint32_t number, bool frame_pointer, FunctionPlan& plan) {
  const Block& block = program_.blocks()[number];
  const std::size_t first_check = plan.checks.size();
  std::vector<std::vector<CheckedAccess>> ranges;  // by check of this block
  std::vector<std::size_t> open;                   // checks that later accesses may join
  for (std::uint32_t i = block.first; i < block.first + block.count; ++i) {
    const Form& form = program_.form(i);
    for (std::uint8_t o = 0; o < form.operand_count; ++o) {
      const MemoryOperand& m = form.operands[o];
      Disposition disposition = classify(i, o, frame_pointer);
      if (disposition == Disposition::kChecked) {
        const auto distance =
            static_cast<std::int32_t>(m.has_displacement ? displacement(form, program_.bytes(i)) : 0);
        const CheckedAccess access{i, distance, m.size, m.is_write};
        const auto join = std::ranges::find_if(open, [&](std::size_t n) {
          const Check& c = plan.checks[n];
          return c.base == m.base && c.index == m.index && (m.index == kNoRegister || c.scale == m.scale) &&
                 std::int64_t{std::max(c.high, distance + m.size)} - std::min(c.low, distance) <= kMaxSpan;
        });
        if (join != open.end()) {
          Check& c = plan.checks[*join];
          c.low = std::min(c.low, distance);
          c.high = std::max(c.high, distance + m.size);
          ranges[*join - first_check].push_back(access);
          disposition = Disposition::kMerged;
        } else {
          Check c;
          c.at = i;
          c.base = m.base;
          c.index = m.index;
          c.scale = m.scale;
          c.low = distance;
          c.high = distance + m.size;
          open.push_back(plan.checks.size());
          plan.checks.push_back(c);
          ranges.push_back({access});
        }
      } else if (disposition == Disposition::kSpecial) {
        Check c;
        c.at = i;
        c.base = m.base;
        c.index = m.index;
        c.scale = m.scale;
        c.is_special = true;
        c.operand = o;
        plan.checks.push_back(c);
        const std::int64_t distance = m.has_displacement ? displacement(form, program_.bytes(i)) : 0;
        ranges.push_back({CheckedAccess{i, static_cast<std::int32_t>(distance), m.size, m.is_write}});
      }
      ++ledger_.counts[static_cast<std::size_t>(disposition)];
    }
    std::erase_if(open, [&](std::size_t n) {
      const Check& c = plan.checks[n];
      return (form.touches & (reg(c.base) | reg(c.index))) != 0;
    });
  }
  if (plan.checks.size() == first_check) return;
  const std::vector<RegSet> live = liveness_.before_each(number);
  for (std::size_t n = first_check; n < plan.checks.size(); ++n) {
    Check& check = plan.checks[n];
    check.first_access = static_cast<std::uint32_t>(plan.accesses.size());
    check.access_count = static_cast<std::uint32_t>(ranges[n - first_check].size());
    std::ranges::copy(ranges[n - first_check], std::back_inserter(plan.accesses));
    if (check.is_special) {
      check.saves_flags = (live[check.at - block.first] & kArithmeticFlags) != 0;
    } else {
      place(check, number, live, plan.may_use_red_zone);
    }
    ++ledger_.checks;
    ledger_.flags_saved += check.saves_flags;
    ledger_.registers_spilled += check.pushes();
  }
}

// Those of `set` that the next instructions do not touch, as far ahead as there are any: what is popped takes a while.
RegSet AccessPlanner::quiet(RegSet set, std::uint32_t i, const Block& block) const {
  for (; i < block.first + block.count; ++i) {
    const RegSet rest = set & ~(program_.form(i).reads | program_.form(i).touches);
    if (rest == 0) break;
    set = rest;
  }
  return set;
}

// Picks the cheapest place between the block's begin and the first access, and what is saved there.
void AccessPlanner::place(Check& check, std::uint32_t number, const std::vector<RegSet>& live, bool red_zone) {
  const Block& block = program_.blocks()[number];
  const RegSet operands = reg(check.base) | reg(check.index);
  Price best;
  for (std::uint32_t i = check.at;; --i) {
    if (i != check.at && (program_.form(i).touches & operands) != 0) break;
    const RegSet needed = live[i - block.first];
    const RegSet dead = kAllRegisters & ~needed & ~operands & ~reg(kRsp);
    Price price{0, check};
    Check& how = price.how;
    how.at = i;
    RegSet free = dead;
    const auto take = [&](RegSet set) {
      const Register r = lowest(set);
      free &= ~reg(r);
      return r;
    };
    how.saves_flags = (needed & kArithmeticFlags) != 0;
    const bool rax_is_operand = (operands & reg(kRax)) != 0;
    const bool rax_is_dead = (dead & reg(kRax)) != 0;
    if (how.saves_flags) free &= ~reg(kRax);  // it will hold the flags
    if (free != 0) {
      how.scratch = take(free);
    } else {
      how.pushes_scratch = true;
      how.scratch = lowest(quiet(kAllRegisters & ~operands & ~reg(kRsp) & ~reg(kRax), i, block));
    }
    if (how.saves_flags) {
      price.cost += 3;
      if (!rax_is_dead || rax_is_operand) {
        if (free != 0) {
          how.rax_home = take(free);
          price.cost += 1;
        } else if (rax_is_operand) {
          // The slow path computes the address anew and needs rax for it: its home must be a register.
          how.pushes_home = true;
          how.rax_home = lowest(kAllRegisters & ~operands & ~reg(kRsp) & ~reg(kRax) & ~reg(how.scratch));
        } else {
          how.pushes_rax = true;
        }
      }
    }
    const unsigned pushed = how.pushes_scratch + how.pushes_rax + how.pushes_home;
    price.cost += 2 * pushed + (pushed != 0 && red_zone ? 2 : 0);
    if (price.cost < best.cost) best = price;
    if (best.cost == 0 || i == block.first) break;
  }
  check = best.how;
}

}  // namespace penumbra::rewrite
