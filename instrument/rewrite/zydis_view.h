// One instruction as Zydis sees it, in our own terms: registers and flags, how control leaves it, what it touches in memory.
//
// Only the decoder (decoder.h) uses it, and holds it against Capstone's view; the rules R1 to R11 are told there.
//
// zone: hosted
#pragma once

#include <Zydis/Zydis.h>

#include <array>
#include <span>

#include "instrument/rewrite/instruction.h"
#include "instrument/rewrite/layout.h"

namespace penumbra::rewrite {

struct ZydisView {
  ZydisDecodedInstruction instruction;
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;

  std::span<const ZydisDecodedOperand> all() const { return {operands.data(), instruction.operand_count}; }
};

// The whole register that this one is part of; kNoRegister where it is none that we follow.
Register register_of(ZydisRegister r);
// Shifts and rotates, which leave the flags alone where their count is 0.
bool is_shift(ZydisMnemonic m);
// xor or sub of a register with itself, at a width that sets all of it.
bool is_zero_idiom(const ZydisView& z);
bool has_rep(const ZydisDecodedInstruction& z);
bool is_string_instruction(const ZydisDecodedInstruction& z);
RegisterUse zydis_use(const ZydisView& z);
// Fills the form's memory operands. False when there are more of them, or stranger ones, than a form can hold.
bool take_memory_operands(const ZydisView& z, Form& form);
Flow flow_of(const ZydisView& z);
// Decoded alike by everybody, but nothing that the rewriter moves or checks; `form` has its operands and flow already.
bool is_unsupported(const ZydisView& z, const Layout& layout, const Form& form);

}  // namespace penumbra::rewrite
