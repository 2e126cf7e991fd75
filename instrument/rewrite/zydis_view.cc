#include "instrument/rewrite/zydis_view.h"

#include <algorithm>
#include <bit>
#include <string_view>

namespace penumbra::rewrite {

Register register_of(ZydisRegister r) {
  if (r == ZYDIS_REGISTER_NONE) return kNoRegister;
  if (r == ZYDIS_REGISTER_RIP || r == ZYDIS_REGISTER_EIP) return kRip;
  const ZydisRegister whole = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, r);
  if (whole >= ZYDIS_REGISTER_RAX && whole <= ZYDIS_REGISTER_R15)
    return static_cast<Register>(whole - ZYDIS_REGISTER_RAX);
  return ZydisRegisterGetClass(r) >= ZYDIS_REGCLASS_XMM && ZydisRegisterGetClass(r) <= ZYDIS_REGCLASS_ZMM
             ? kVector
             : kNoRegister;
}

namespace {

RegSet flags_of(ZydisAccessedFlagsMask mask) {
  return (mask & ZYDIS_CPUFLAG_CF ? kCarry : 0) | (mask & ZYDIS_CPUFLAG_PF ? kParity : 0) |
         (mask & ZYDIS_CPUFLAG_AF ? kAdjust : 0) | (mask & ZYDIS_CPUFLAG_ZF ? kZero : 0) |
         (mask & ZYDIS_CPUFLAG_SF ? kSign : 0) | (mask & ZYDIS_CPUFLAG_OF ? kOverflow : 0) |
         (mask & ZYDIS_CPUFLAG_DF ? kDirection : 0);
}

}  // namespace

bool is_shift(ZydisMnemonic m) {
  switch (m) {
    case ZYDIS_MNEMONIC_SHL:
    case ZYDIS_MNEMONIC_SHR:
    case ZYDIS_MNEMONIC_SAR:
    case ZYDIS_MNEMONIC_ROL:
    case ZYDIS_MNEMONIC_ROR:
    case ZYDIS_MNEMONIC_RCL:
    case ZYDIS_MNEMONIC_RCR:
    case ZYDIS_MNEMONIC_SHLD:
    case ZYDIS_MNEMONIC_SHRD: return true;
    default: return false;
  }
}

bool is_zero_idiom(const ZydisView& z) {
  const auto& ops = z.operands;
  return (z.instruction.mnemonic == ZYDIS_MNEMONIC_XOR || z.instruction.mnemonic == ZYDIS_MNEMONIC_SUB) &&
         ops[0].type == ZYDIS_OPERAND_TYPE_REGISTER && ops[1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
         ops[0].reg.value == ops[1].reg.value && ops[0].size >= 32;
}

bool has_rep(const ZydisDecodedInstruction& z) {
  return (z.attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)) != 0;
}

bool is_string_instruction(const ZydisDecodedInstruction& z) {
  return z.meta.category == ZYDIS_CATEGORY_STRINGOP || z.meta.category == ZYDIS_CATEGORY_IOSTRINGOP;
}

RegisterUse zydis_use(const ZydisView& z) {
  const ZydisDecodedInstruction& instruction = z.instruction;
  RegisterUse use;
  const bool keeps_on_zero_source =
      instruction.mnemonic == ZYDIS_MNEMONIC_BSF || instruction.mnemonic == ZYDIS_MNEMONIC_BSR;
  for (const ZydisDecodedOperand& op : z.all()) {
    if (op.type == ZYDIS_OPERAND_TYPE_MEMORY) {
      use.reads |= reg(register_of(op.mem.base)) | reg(register_of(op.mem.index));
      continue;
    }
    if (op.type != ZYDIS_OPERAND_TYPE_REGISTER) continue;
    const Register r = register_of(op.reg.value);
    if (r < 0) continue;
    if ((op.actions & ZYDIS_OPERAND_ACTION_MASK_READ) != 0) use.reads |= reg(r);
    if ((op.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) == 0) continue;
    use.touches |= reg(r);
    const bool always =
        (op.actions & ZYDIS_OPERAND_ACTION_WRITE) != 0 && !has_rep(instruction) && !keeps_on_zero_source;
    const unsigned width = ZydisRegisterGetWidth(ZYDIS_MACHINE_MODE_LONG_64, op.reg.value);
    if (always && width >= 32) {
      use.kills |= reg(r);
    } else {
      use.reads |= reg(r);  // what is not overwritten whole flows on
    }
  }
  if (const ZydisAccessedFlags* flags = instruction.cpu_flags) {
    use.reads |= flags_of(flags->tested);
    const RegSet changed = flags_of(flags->modified | flags->set_0 | flags->set_1 | flags->undefined);
    use.touches |= changed;
    bool by_register = has_rep(instruction);
    if (is_shift(instruction.mnemonic)) {
      for (const ZydisDecodedOperand& op : z.all()) by_register |= op.reg.value == ZYDIS_REGISTER_CL;
    }
    if (!by_register) use.kills |= changed;
  }
  return use;
}

namespace {

// The mask register of an EVEX instruction that has one, 0 for none.
std::uint8_t evex_mask(const ZydisDecodedInstruction& z) {
  if (z.encoding != ZYDIS_INSTRUCTION_ENCODING_EVEX || z.avx.mask.reg == ZYDIS_REGISTER_NONE) return 0;
  return static_cast<std::uint8_t>(ZydisRegisterGetId(z.avx.mask.reg));
}

// R11: loads of the exception classes without fault suppression read all of their operand whatever the mask says.
bool chooses_elements(const ZydisDecodedInstruction& z, const ZydisDecodedOperand& op) {
  if ((op.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0) return true;
  switch (z.meta.exception_class) {
    case ZYDIS_EXCEPTION_CLASS_E1NF:
    case ZYDIS_EXCEPTION_CLASS_E2NF:
    case ZYDIS_EXCEPTION_CLASS_E3NF:
    case ZYDIS_EXCEPTION_CLASS_E4NF:
    case ZYDIS_EXCEPTION_CLASS_E5NF:
    case ZYDIS_EXCEPTION_CLASS_E6NF:
    case ZYDIS_EXCEPTION_CLASS_E9NF:
    case ZYDIS_EXCEPTION_CLASS_E10NF: return false;
    default: return true;
  }
}

AccessShape shape_of(const ZydisView& z, const ZydisDecodedOperand& op) {
  const ZydisDecodedInstruction& instruction = z.instruction;
  if (op.mem.type == ZYDIS_MEMOP_TYPE_VSIB) return AccessShape::kGathered;
  if (is_string_instruction(instruction)) return AccessShape::kString;
  switch (instruction.mnemonic) {
    case ZYDIS_MNEMONIC_BT:
    case ZYDIS_MNEMONIC_BTS:
    case ZYDIS_MNEMONIC_BTR:
    case ZYDIS_MNEMONIC_BTC:
      return z.operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER ? AccessShape::kBitString : AccessShape::kPlain;
    case ZYDIS_MNEMONIC_XLAT: return AccessShape::kTable;
    case ZYDIS_MNEMONIC_MASKMOVQ:
    case ZYDIS_MNEMONIC_MASKMOVDQU:
    case ZYDIS_MNEMONIC_VMASKMOVDQU:
    case ZYDIS_MNEMONIC_VMASKMOVPS:
    case ZYDIS_MNEMONIC_VMASKMOVPD:
    case ZYDIS_MNEMONIC_VPMASKMOVD:
    case ZYDIS_MNEMONIC_VPMASKMOVQ: return AccessShape::kMasked;
    default: break;
  }
  switch (instruction.meta.category) {
    case ZYDIS_CATEGORY_XSAVE:
    case ZYDIS_CATEGORY_XSAVEOPT: return AccessShape::kState;
    default: break;
  }
  return evex_mask(instruction) != 0 && chooses_elements(instruction, op) ? AccessShape::kMasked
                                                                          : AccessShape::kPlain;
}

std::uint8_t number_of(ZydisRegister r) {
  return static_cast<std::uint8_t>(ZydisRegisterGetId(r));
}

// Is the register a vector, so that its elements are those of the result?
bool is_vector(const ZydisDecodedOperand& op) {
  return op.type == ZYDIS_OPERAND_TYPE_REGISTER && register_of(op.reg.value) == kVector;
}

// The mask of vmaskmov and vpmaskmov is the second operand, that of maskmovdqu and its like the second explicit one.
const ZydisDecodedOperand& second_explicit(const ZydisView& z) {
  unsigned seen = 0;
  for (const ZydisDecodedOperand& op : z.all()) {
    if (op.visibility == ZYDIS_OPERAND_VISIBILITY_EXPLICIT && ++seen == 2) return op;
  }
  return z.operands[1];
}

ElementChoice gathered_elements(const ZydisView& z, const ZydisDecodedOperand& op) {
  ElementChoice choice;
  choice.element_bytes = static_cast<std::uint8_t>(op.element_size / 8);
  choice.index_register = number_of(op.mem.index);
  // v[p]gatherdX, v[p]scatterqX: the letter behind the verb says how wide an index is.
  const std::string_view name = ZydisMnemonicGetString(z.instruction.mnemonic);
  const std::size_t verb = name.find("gather") != name.npos ? name.find("gather") + 6 : name.find("scatter") + 7;
  choice.has_wide_index = verb < name.size() && name[verb] == 'q';
  const unsigned index_bits = ZydisRegisterGetWidth(ZYDIS_MACHINE_MODE_LONG_64, op.mem.index);
  const bool is_store = (op.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0;
  const ZydisDecodedOperand& data = z.operands[is_store ? z.instruction.operand_count_visible - 1 : 0];
  choice.count = static_cast<std::uint8_t>(
      std::min<unsigned>(index_bits / (choice.has_wide_index ? 64 : 32), data.size / op.element_size));
  if (z.instruction.encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX) {
    choice.decider = ElementChoice::kMaskRegister;
    choice.decider_register = evex_mask(z.instruction);
  } else {
    choice.decider = ElementChoice::kVectorSigns;
    choice.decider_register = number_of(z.operands[2].reg.value);
  }
  return choice;
}

// False when the elements cannot be told.
bool masked_elements(const ZydisView& z, const ZydisDecodedOperand& op, ElementChoice& choice) {
  const unsigned bytes = op.size / 8;
  switch (z.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_MASKMOVQ:
    case ZYDIS_MNEMONIC_MASKMOVDQU:
    case ZYDIS_MNEMONIC_VMASKMOVDQU: choice.element_bytes = 1; break;
    case ZYDIS_MNEMONIC_VMASKMOVPS:
    case ZYDIS_MNEMONIC_VPMASKMOVD: choice.element_bytes = 4; break;
    case ZYDIS_MNEMONIC_VMASKMOVPD:
    case ZYDIS_MNEMONIC_VPMASKMOVQ: choice.element_bytes = 8; break;
    default: {
      choice.decider = ElementChoice::kMaskRegister;
      choice.decider_register = evex_mask(z.instruction);
      const bool is_store = (op.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0;
      const ZydisDecodedOperand& other = z.operands[is_store ? z.instruction.operand_count_visible - 1 : 0];
      const unsigned others = is_vector(other) ? std::max<unsigned>(other.element_count, 1) : op.element_count;
      const std::string_view name = ZydisMnemonicGetString(z.instruction.mnemonic);
      unsigned count = std::min<unsigned>(op.element_count, others);
      if (z.instruction.avx.broadcast.mode != ZYDIS_BROADCAST_MODE_INVALID) {
        choice.place = ElementChoice::kTogether;
        count = others;
        choice.element_bytes = 1;
      } else {
        if (name.find("compress") != name.npos || name.find("expand") != name.npos) {
          choice.place = ElementChoice::kPacked;
        }
        if (count == 0 || bytes % count != 0) return false;
        choice.element_bytes = static_cast<std::uint8_t>(bytes / count);
      }
      choice.count = static_cast<std::uint8_t>(count);
      return count >= 1 && count <= 64 && std::has_single_bit(choice.element_bytes) && choice.element_bytes <= 8;
    }
  }
  const ZydisDecodedOperand& mask = second_explicit(z);
  const bool is_mmx = z.instruction.mnemonic == ZYDIS_MNEMONIC_MASKMOVQ;
  choice.decider = is_mmx ? ElementChoice::kMmxSigns : ElementChoice::kVectorSigns;
  choice.decider_register = number_of(mask.reg.value);
  choice.count = static_cast<std::uint8_t>(bytes / choice.element_bytes);
  return true;
}

// Names an address without touching it, or touches it in no way that a check would mind.
bool is_no_access(const ZydisDecodedInstruction& z) {
  if (z.meta.category == ZYDIS_CATEGORY_NOP || z.meta.category == ZYDIS_CATEGORY_WIDENOP ||
      z.meta.category == ZYDIS_CATEGORY_PREFETCH) {
    return true;
  }
  switch (z.mnemonic) {
    case ZYDIS_MNEMONIC_NOP:
    case ZYDIS_MNEMONIC_CLFLUSH:
    case ZYDIS_MNEMONIC_CLFLUSHOPT:
    case ZYDIS_MNEMONIC_CLWB:
    case ZYDIS_MNEMONIC_CLDEMOTE: return true;
    default: break;
  }
  if (z.mnemonic >= ZYDIS_MNEMONIC_PREFETCH && z.mnemonic <= ZYDIS_MNEMONIC_PREFETCHWT1) return true;
  const std::string_view name = ZydisMnemonicGetString(z.mnemonic);
  return name.find("gatherpf") != name.npos || name.find("scatterpf") != name.npos;
}

bool is_implicit_stack(const ZydisDecodedOperand& op) {
  return op.visibility != ZYDIS_OPERAND_VISIBILITY_EXPLICIT && register_of(op.mem.base) == kRsp;
}

}  // namespace

bool take_memory_operands(const ZydisView& z, Form& form) {
  if (is_no_access(z.instruction)) return true;
  for (const ZydisDecodedOperand& op : z.all()) {
    if (op.type != ZYDIS_OPERAND_TYPE_MEMORY || op.mem.type == ZYDIS_MEMOP_TYPE_AGEN || is_implicit_stack(op))
      continue;
    if (op.mem.type != ZYDIS_MEMOP_TYPE_MEM && op.mem.type != ZYDIS_MEMOP_TYPE_VSIB) return false;
    if (form.operand_count == form.operands.size()) return false;
    MemoryOperand& m = form.operands[form.operand_count++];
    m.base = register_of(op.mem.base);
    m.index = register_of(op.mem.index);
    m.scale = op.mem.index == ZYDIS_REGISTER_NONE || op.mem.scale == 0 ? 1 : op.mem.scale;
    m.segment = op.mem.segment == ZYDIS_REGISTER_FS ? 4 : op.mem.segment == ZYDIS_REGISTER_GS ? 5 : 0;
    m.shape = shape_of(z, op);
    m.size = static_cast<std::uint16_t>(op.size / 8);
    // vbroadcastf128 and its like name all that they read; {1toN} reads one element.
    const bool broadcasts = z.instruction.avx.broadcast.mode != ZYDIS_BROADCAST_MODE_INVALID &&
                            !z.instruction.avx.broadcast.is_static && op.element_size != 0;
    if (m.shape == AccessShape::kGathered || broadcasts) {
      m.size = static_cast<std::uint16_t>(std::min<unsigned>(m.size, op.element_size / 8));
    }
    m.is_read = (op.actions & ZYDIS_OPERAND_ACTION_MASK_READ) != 0;
    m.is_write = (op.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0;
    m.has_displacement = op.mem.disp.has_displacement != 0;
    if (m.size == 0 && m.shape != AccessShape::kState) return false;
    if (m.shape == AccessShape::kGathered) m.choice = gathered_elements(z, op);
    if (m.shape == AccessShape::kMasked && !masked_elements(z, op, m.choice)) return false;
  }
  return true;
}

Flow flow_of(const ZydisView& z) {
  const ZydisMnemonic m = z.instruction.mnemonic;
  const bool direct = z.operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE;
  switch (z.instruction.meta.category) {
    case ZYDIS_CATEGORY_COND_BR:
      switch (m) {
        case ZYDIS_MNEMONIC_JCXZ:
        case ZYDIS_MNEMONIC_JECXZ:
        case ZYDIS_MNEMONIC_JRCXZ:
        case ZYDIS_MNEMONIC_LOOP:
        case ZYDIS_MNEMONIC_LOOPE:
        case ZYDIS_MNEMONIC_LOOPNE: return Flow::kCountedJump;
        default: return Flow::kConditionalJump;
      }
    case ZYDIS_CATEGORY_UNCOND_BR: return direct ? Flow::kJump : Flow::kIndirectJump;
    case ZYDIS_CATEGORY_CALL: return direct ? Flow::kCall : Flow::kIndirectCall;
    case ZYDIS_CATEGORY_RET: return Flow::kReturn;
    default: break;
  }
  switch (m) {
    case ZYDIS_MNEMONIC_UD0:
    case ZYDIS_MNEMONIC_UD1:
    case ZYDIS_MNEMONIC_UD2:
    case ZYDIS_MNEMONIC_HLT:
    case ZYDIS_MNEMONIC_INT3:
    case ZYDIS_MNEMONIC_INT1: return Flow::kTrap;
    case ZYDIS_MNEMONIC_SYSCALL:
    case ZYDIS_MNEMONIC_SYSENTER:
    case ZYDIS_MNEMONIC_INT: return Flow::kSystemCall;
    default: return Flow::kNext;
  }
}

bool is_unsupported(const ZydisView& z, const Layout& layout, const Form& form) {
  const ZydisDecodedInstruction& instruction = z.instruction;
  if (instruction.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR) return true;
  switch (instruction.mnemonic) {
    case ZYDIS_MNEMONIC_XBEGIN:
    case ZYDIS_MNEMONIC_XABORT:
    case ZYDIS_MNEMONIC_IRET:
    case ZYDIS_MNEMONIC_IRETD:
    case ZYDIS_MNEMONIC_IRETQ:
    case ZYDIS_MNEMONIC_SYSRET:
    case ZYDIS_MNEMONIC_SYSEXIT:
    case ZYDIS_MNEMONIC_UIRET: return true;
    default: break;
  }
  switch (instruction.meta.category) {
    case ZYDIS_CATEGORY_MPX:
    case ZYDIS_CATEGORY_AMX_TILE:
    case ZYDIS_CATEGORY_UINTR: return true;
    default: break;
  }
  // 32-bit addresses wrap around differently; on a call or jump the prefix is padding.
  return layout.has_address_override &&
         (form.operand_count != 0 || form.flow == Flow::kCountedJump || instruction.mnemonic == ZYDIS_MNEMONIC_LEA);
}

}  // namespace penumbra::rewrite
