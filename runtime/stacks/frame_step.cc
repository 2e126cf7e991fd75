#include "runtime/stacks/frame_step.h"

namespace penumbra::stacks {
namespace {

// What a register of the caller is according to one rule. kUnknownRegister also means "cannot be recovered".
StepStatus apply(const CfiEntry& entry, RegisterRule rule, unsigned r, std::uint64_t cfa, const Registers& registers,
                 StackMemory& memory, std::uint64_t& value) {
  switch (rule.kind) {
    case RuleKind::kUndefined: return StepStatus::kUnknownRegister;
    case RuleKind::kUnspecified:
    case RuleKind::kSame:
      if (rule.kind == RuleKind::kUnspecified && (kCalleeSaved >> r & 1) == 0) return StepStatus::kUnknownRegister;
      value = registers.value[r];
      return registers.has(r) ? StepStatus::kOk : StepStatus::kUnknownRegister;
    case RuleKind::kOffset:
      return memory.read(cfa + static_cast<std::uint64_t>(std::int64_t{rule.value}), value) ? StepStatus::kOk
                                                                                            : StepStatus::kBroken;
    case RuleKind::kValOffset:
      value = cfa + static_cast<std::uint64_t>(std::int64_t{rule.value});
      return StepStatus::kOk;
    case RuleKind::kRegister:
      value = registers.value[rule.value];
      return registers.has(static_cast<unsigned>(rule.value)) ? StepStatus::kOk : StepStatus::kUnknownRegister;
    case RuleKind::kExpression: {
      std::uint64_t address;
      const StepStatus status = evaluate(entry.section, rule.value, registers, memory, &cfa, address);
      if (status != StepStatus::kOk) return status;
      return memory.read(address, value) ? StepStatus::kOk : StepStatus::kBroken;
    }
    case RuleKind::kValExpression: return evaluate(entry.section, rule.value, registers, memory, &cfa, value);
  }
  return StepStatus::kBroken;
}

}  // namespace

StepStatus compute_cfa(const CfiEntry& entry, const CfiRow& row, const Registers& registers, StackMemory& memory,
                       std::uint64_t& cfa) {
  if (row.cfa_is_expression) return evaluate(entry.section, row.cfa_value, registers, memory, nullptr, cfa);
  if (!registers.has(row.cfa_register)) return StepStatus::kUnknownRegister;
  cfa = registers.value[row.cfa_register] + static_cast<std::uint64_t>(std::int64_t{row.cfa_value});
  return StepStatus::kOk;
}

StepStatus step(const CfiEntry& entry, const CfiRow& row, Registers& registers, StackMemory& memory) {
  if (row.rules[kRip].kind == RuleKind::kUndefined) return StepStatus::kEnd;
  std::uint64_t cfa = 0;
  if (const StepStatus status = compute_cfa(entry, row, registers, memory, cfa); status != StepStatus::kOk) {
    return status;
  }
  Registers caller;
  for (unsigned r = 0; r < kRegisters; ++r) {
    std::uint64_t value = 0;
    StepStatus status;
    if (r == kRsp && row.rules[r].kind == RuleKind::kUnspecified) {
      value = cfa;  // the CFA is by definition the stack pointer before the call
      status = StepStatus::kOk;
    } else {
      status = apply(entry, row.rules[r], r, cfa, registers, memory, value);
    }
    if (status == StepStatus::kOk) {
      caller.set(r, value);
    } else if (r == kRip || r == kRsp) {
      return status;  // without these two there is no caller; any other is unknown until a rule asks for it
    }
  }
  registers = caller;
  return StepStatus::kOk;
}

}  // namespace penumbra::stacks
