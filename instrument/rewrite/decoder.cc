#include "instrument/rewrite/decoder.h"

#include <capstone/capstone.h>
#include <Zydis/Zydis.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace penumbra::rewrite {
namespace {

// Any address will do: forms know nothing of places. Small enough that no sum overflows.
constexpr std::uint64_t kProbeAddress = 0x100000;

// R2: known to Zydis and our reading, unknown to Capstone 4.0.2, and simple enough to be believed.
constexpr ZydisMnemonic kZydisAlone[] = {
    ZYDIS_MNEMONIC_NOP,       ZYDIS_MNEMONIC_MOV,           ZYDIS_MNEMONIC_INCSSPD,          ZYDIS_MNEMONIC_INCSSPQ,
    ZYDIS_MNEMONIC_RDSSPD,    ZYDIS_MNEMONIC_RDSSPQ,        ZYDIS_MNEMONIC_RDPKRU,           ZYDIS_MNEMONIC_WRPKRU,
    ZYDIS_MNEMONIC_GF2P8MULB, ZYDIS_MNEMONIC_GF2P8AFFINEQB, ZYDIS_MNEMONIC_GF2P8AFFINEINVQB, ZYDIS_MNEMONIC_CLWB,
    ZYDIS_MNEMONIC_MOVDIRI,   ZYDIS_MNEMONIC_MOVDIR64B,
};

struct RegisterUse {
  RegSet reads = 0;
  RegSet kills = 0;
  RegSet touches = 0;
};

// ---- Zydis ---------------------------------------------------------------------------------------------------------

struct ZydisView {
  ZydisDecodedInstruction instruction;
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;

  std::span<const ZydisDecodedOperand> all() const { return {operands.data(), instruction.operand_count}; }
};

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

RegSet flags_of(ZydisAccessedFlagsMask mask) {
  return (mask & ZYDIS_CPUFLAG_CF ? kCarry : 0) | (mask & ZYDIS_CPUFLAG_PF ? kParity : 0) |
         (mask & ZYDIS_CPUFLAG_AF ? kAdjust : 0) | (mask & ZYDIS_CPUFLAG_ZF ? kZero : 0) |
         (mask & ZYDIS_CPUFLAG_SF ? kSign : 0) | (mask & ZYDIS_CPUFLAG_OF ? kOverflow : 0) |
         (mask & ZYDIS_CPUFLAG_DF ? kDirection : 0);
}

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

// False when there are more operands, or stranger ones, than a form can hold.
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

// ---- Capstone ------------------------------------------------------------------------------------------------------

Register register_of(x86_reg r) {
  switch (r) {
    case X86_REG_AL:
    case X86_REG_AH:
    case X86_REG_AX:
    case X86_REG_EAX:
    case X86_REG_RAX: return kRax;
    case X86_REG_CL:
    case X86_REG_CH:
    case X86_REG_CX:
    case X86_REG_ECX:
    case X86_REG_RCX: return kRcx;
    case X86_REG_DL:
    case X86_REG_DH:
    case X86_REG_DX:
    case X86_REG_EDX:
    case X86_REG_RDX: return kRdx;
    case X86_REG_BL:
    case X86_REG_BH:
    case X86_REG_BX:
    case X86_REG_EBX:
    case X86_REG_RBX: return kRbx;
    case X86_REG_SPL:
    case X86_REG_SP:
    case X86_REG_ESP:
    case X86_REG_RSP: return kRsp;
    case X86_REG_BPL:
    case X86_REG_BP:
    case X86_REG_EBP:
    case X86_REG_RBP: return kRbp;
    case X86_REG_SIL:
    case X86_REG_SI:
    case X86_REG_ESI:
    case X86_REG_RSI: return kRsi;
    case X86_REG_DIL:
    case X86_REG_DI:
    case X86_REG_EDI:
    case X86_REG_RDI: return kRdi;
    case X86_REG_RIP:
    case X86_REG_EIP:
    case X86_REG_IP: return kRip;
    case X86_REG_RIZ:
    case X86_REG_EIZ:
    case X86_REG_INVALID: return kNoRegister;
    default: break;
  }
  if (r >= X86_REG_R8 && r <= X86_REG_R15) return static_cast<Register>(kR8 + (r - X86_REG_R8));
  if (r >= X86_REG_R8B && r <= X86_REG_R15B) return static_cast<Register>(kR8 + (r - X86_REG_R8B));
  if (r >= X86_REG_R8D && r <= X86_REG_R15D) return static_cast<Register>(kR8 + (r - X86_REG_R8D));
  if (r >= X86_REG_R8W && r <= X86_REG_R15W) return static_cast<Register>(kR8 + (r - X86_REG_R8W));
  const bool vector = (r >= X86_REG_XMM0 && r <= X86_REG_XMM31) || (r >= X86_REG_YMM0 && r <= X86_REG_YMM31) ||
                      (r >= X86_REG_ZMM0 && r <= X86_REG_ZMM31);
  return vector ? kVector : kNoRegister;
}

// Is a write to this part of a general register one to all of it?
bool is_whole(x86_reg r) {
  switch (r) {
    case X86_REG_EAX:
    case X86_REG_ECX:
    case X86_REG_EDX:
    case X86_REG_EBX:
    case X86_REG_ESP:
    case X86_REG_EBP:
    case X86_REG_ESI:
    case X86_REG_EDI:
    case X86_REG_RAX:
    case X86_REG_RCX:
    case X86_REG_RDX:
    case X86_REG_RBX:
    case X86_REG_RSP:
    case X86_REG_RBP:
    case X86_REG_RSI:
    case X86_REG_RDI: return true;
    default: return (r >= X86_REG_R8 && r <= X86_REG_R15) || (r >= X86_REG_R8D && r <= X86_REG_R15D);
  }
}

struct FlagBits {
  RegSet flag;
  std::uint64_t changed;
  std::uint64_t tested;
};

constexpr FlagBits kCapstoneFlags[] = {
    {kCarry, X86_EFLAGS_MODIFY_CF | X86_EFLAGS_RESET_CF | X86_EFLAGS_SET_CF | X86_EFLAGS_UNDEFINED_CF,
     X86_EFLAGS_TEST_CF},
    {kParity, X86_EFLAGS_MODIFY_PF | X86_EFLAGS_RESET_PF | X86_EFLAGS_SET_PF | X86_EFLAGS_UNDEFINED_PF,
     X86_EFLAGS_TEST_PF},
    {kAdjust, X86_EFLAGS_MODIFY_AF | X86_EFLAGS_RESET_AF | X86_EFLAGS_SET_AF | X86_EFLAGS_UNDEFINED_AF,
     X86_EFLAGS_TEST_AF},
    {kZero, X86_EFLAGS_MODIFY_ZF | X86_EFLAGS_RESET_ZF | X86_EFLAGS_SET_ZF | X86_EFLAGS_UNDEFINED_ZF,
     X86_EFLAGS_TEST_ZF},
    {kSign, X86_EFLAGS_MODIFY_SF | X86_EFLAGS_RESET_SF | X86_EFLAGS_SET_SF | X86_EFLAGS_UNDEFINED_SF,
     X86_EFLAGS_TEST_SF},
    {kOverflow, X86_EFLAGS_MODIFY_OF | X86_EFLAGS_RESET_OF | X86_EFLAGS_SET_OF | X86_EFLAGS_UNDEFINED_OF,
     X86_EFLAGS_TEST_OF},
    {kDirection, X86_EFLAGS_MODIFY_DF | X86_EFLAGS_RESET_DF | X86_EFLAGS_SET_DF, X86_EFLAGS_TEST_DF},
};

class CapstoneView {
 public:
  explicit CapstoneView(csh handle) : handle_(handle), instruction_(cs_malloc(handle)) {}
  ~CapstoneView() { cs_free(instruction_, 1); }
  CapstoneView(const CapstoneView&) = delete;
  CapstoneView& operator=(const CapstoneView&) = delete;

  bool decode(std::span<const std::uint8_t> bytes) {
    const std::uint8_t* code = bytes.data();
    std::size_t size = bytes.size();
    std::uint64_t address = kProbeAddress;
    return cs_disasm_iter(handle_, &code, &size, &address, instruction_);
  }

  const cs_insn& instruction() const { return *instruction_; }
  const cs_x86& detail() const { return instruction_->detail->x86; }
  bool in_group(unsigned group) const { return cs_insn_group(handle_, instruction_, group); }

  RegisterUse use() const {
    RegisterUse use;
    cs_regs read;
    cs_regs written;
    std::uint8_t reads = 0;
    std::uint8_t writes = 0;
    cs_regs_access(handle_, instruction_, read, &reads, written, &writes);
    for (unsigned i = 0; i < reads; ++i) {
      const Register r = register_of(static_cast<x86_reg>(read[i]));
      if (r >= 0) use.reads |= reg(r);
    }
    for (unsigned i = 0; i < writes; ++i) {
      const auto name = static_cast<x86_reg>(written[i]);
      const Register r = register_of(name);
      if (r < 0) continue;
      use.touches |= reg(r);
      if (is_whole(name)) use.kills |= reg(r);
    }
    // `eflags` shares its place with `fpu_flags`, which x87 instructions fill.
    if (!in_group(X86_GRP_FPU)) {
      for (const FlagBits& bits : kCapstoneFlags) {
        if ((detail().eflags & bits.tested) != 0) use.reads |= bits.flag;
        if ((detail().eflags & bits.changed) != 0) use.touches |= bits.flag, use.kills |= bits.flag;
      }
    }
    return use;
  }

 private:
  csh handle_;
  cs_insn* instruction_;
};

std::optional<std::int64_t> direct_target(const ZydisView& z) {
  const ZydisDecodedOperand& op = z.operands[0];
  if (op.type != ZYDIS_OPERAND_TYPE_IMMEDIATE || !op.imm.is_relative) return std::nullopt;
  return static_cast<std::int64_t>(kProbeAddress + z.instruction.length) + op.imm.value.s;
}

bool same_control_flow(const ZydisView& z, const CapstoneView& c, Flow flow) {
  const bool jumps = c.in_group(X86_GRP_JUMP);
  const bool calls = c.in_group(X86_GRP_CALL);
  const bool returns = c.in_group(X86_GRP_RET);
  const cs_x86& detail = c.detail();
  const bool direct = detail.op_count == 1 && detail.operands[0].type == X86_OP_IMM;
  switch (flow) {
    case Flow::kConditionalJump:
    case Flow::kCountedJump:
    case Flow::kJump:
      return (jumps || flow == Flow::kCountedJump) && direct && direct_target(z) == detail.operands[0].imm;
    case Flow::kCall: return calls && direct && direct_target(z) == detail.operands[0].imm;
    case Flow::kIndirectJump: return jumps && !direct;
    case Flow::kIndirectCall: return calls && !direct;
    case Flow::kReturn: return returns;
    case Flow::kNext: return !jumps && !calls && !returns;
    case Flow::kTrap:
    case Flow::kSystemCall: return !jumps && !returns;
  }
  return false;
}

// Base, index, scale and displacement of explicit operands, under R7 to R10.
bool same_memory_operands(const ZydisView& z, const CapstoneView& c, const Layout& layout) {
  std::vector<const ZydisDecodedOperand*> theirs;
  const bool is_string = is_string_instruction(z.instruction);
  for (const ZydisDecodedOperand& op : z.all()) {
    if (op.type != ZYDIS_OPERAND_TYPE_MEMORY) continue;
    if (op.visibility == ZYDIS_OPERAND_VISIBILITY_EXPLICIT || is_string) theirs.push_back(&op);
  }
  std::vector<const cs_x86_op*> ours;
  const cs_x86& detail = c.detail();
  for (unsigned i = 0; i < detail.op_count; ++i) {
    if (detail.operands[i].type == X86_OP_MEM) ours.push_back(&detail.operands[i]);
  }
  if (theirs.size() != ours.size()) return false;
  if (is_string) {
    RegSet a = 0;
    RegSet b = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      a |= reg(register_of(theirs[i]->mem.base));
      b |= reg(register_of(ours[i]->mem.base));
    }
    return a == b;
  }
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const auto& a = theirs[i]->mem;
    const x86_op_mem& b = ours[i]->mem;
    const bool moffs =
        a.base == ZYDIS_REGISTER_NONE && a.index == ZYDIS_REGISTER_NONE && layout.displacement_bytes == 0;
    if (moffs) {
      if (b.base != X86_REG_INVALID || b.index != X86_REG_INVALID) return false;
      continue;
    }
    if (register_of(a.base) != register_of(static_cast<x86_reg>(b.base))) return false;
    const bool evex_index = layout.is_evex && theirs[i]->mem.type != ZYDIS_MEMOP_TYPE_VSIB;
    const Register index = register_of(static_cast<x86_reg>(b.index));
    const bool scatter_index = layout.is_evex && theirs[i]->mem.type == ZYDIS_MEMOP_TYPE_VSIB && index >= 0;
    if (register_of(a.index) != index && !(evex_index && index == kVector) && !scatter_index) return false;
    if (a.index != ZYDIS_REGISTER_NONE && a.scale != b.scale) return false;
    if (a.disp.value != b.disp) return false;
  }
  return true;
}

std::uint64_t hash_key(const FormKey& key) {
  std::uint64_t words[2];
  std::memcpy(words, key.bytes.data(), sizeof words);
  std::uint64_t h = (words[0] ^ (words[1] * 0x9e3779b97f4a7c15u)) * 0xd6e8feb86659fd93u;
  h ^= h >> 32;
  return h * 0xd6e8feb86659fd93u ^ (h >> 29);
}

std::int64_t read_signed(const std::uint8_t* at, unsigned bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, std::min(bytes, 8u));
  const unsigned shift = 64 - 8 * bytes;
  return bytes >= 8 ? static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value << shift) >> shift;
}

}  // namespace

struct Decoder::Impl {
  ZydisDecoder zydis;
  csh capstone = 0;

  Impl() {
    if (ZYAN_FAILED(ZydisDecoderInit(&zydis, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)) ||
        cs_open(CS_ARCH_X86, CS_MODE_64, &capstone) != CS_ERR_OK ||
        cs_option(capstone, CS_OPT_DETAIL, CS_OPT_ON) != CS_ERR_OK) {
      throw std::runtime_error("cannot start the instruction decoders");
    }
  }

  ~Impl() { cs_close(&capstone); }

  Form judge(std::span<const std::uint8_t> bytes, const Layout& layout) const;
};

// What both decoders and the layout together say of one instruction.
Form Decoder::Impl::judge(std::span<const std::uint8_t> bytes, const Layout& layout) const {
  Form form;
  form.length = layout.length;
  form.displacement_offset = layout.displacement_offset;
  form.displacement_bytes = layout.displacement_bytes;
  form.immediate_offset = layout.immediate_offset;
  form.immediate_bytes = layout.immediate_bytes;

  ZydisView z;
  const bool zydis_knows =
      ZYAN_SUCCESS(ZydisDecoderDecodeFull(&zydis, bytes.data(), bytes.size(), &z.instruction, z.operands.data()));
  CapstoneView c(capstone);
  const bool capstone_knows = c.decode(bytes);
  if (!zydis_knows) {
    form.doubt = capstone_knows ? Doubt::kOneDecoderOnly : Doubt::kUndecodable;
    return form;
  }
  form.doubt = Doubt::kNone;
  form.mnemonic = static_cast<std::uint16_t>(z.instruction.mnemonic);
  if (z.instruction.length != layout.length || (capstone_knows && c.instruction().size != layout.length)) {
    form.doubt = Doubt::kLength;  // R1
    return form;
  }
  form.flow = flow_of(z);
  form.has_rep = has_rep(z.instruction) && is_string_instruction(z.instruction);
  form.is_nop = z.instruction.mnemonic == ZYDIS_MNEMONIC_NOP || z.instruction.meta.category == ZYDIS_CATEGORY_WIDENOP;
  form.is_rip_relative = false;
  for (const ZydisDecodedOperand& op : z.all()) {
    if (op.type == ZYDIS_OPERAND_TYPE_MEMORY && register_of(op.mem.base) == kRip) form.is_rip_relative = true;
  }
  form.is_wide_address = z.instruction.mnemonic == ZYDIS_MNEMONIC_LEA && form.is_rip_relative;
  if (form.flow == Flow::kConditionalJump) form.condition = z.instruction.opcode & 15;
  form.kills_need_immediate = is_shift(z.instruction.mnemonic) && layout.immediate_bytes != 0;
  if (layout.displacement_bytes == 1) {
    for (const ZydisDecodedOperand& op : z.all()) {
      if (op.type == ZYDIS_OPERAND_TYPE_MEMORY && op.mem.disp.has_displacement && z.instruction.raw.disp.value != 0) {
        form.displacement_scale = static_cast<std::uint8_t>(op.mem.disp.value / z.instruction.raw.disp.value);
      }
    }
  }

  const RegisterUse from_zydis = zydis_use(z);
  RegisterUse use = from_zydis;
  if (capstone_knows) {
    if (!same_control_flow(z, c, form.flow)) form.doubt = Doubt::kControlFlow;
    if (form.doubt == Doubt::kNone && !same_memory_operands(z, c, layout)) form.doubt = Doubt::kMemoryOperands;
    const RegisterUse from_capstone = c.use();  // R3
    use.reads |= from_capstone.reads;
    use.kills &= from_capstone.kills;
    use.touches |= from_capstone.touches;
  } else if (!layout.is_vex && std::ranges::find(kZydisAlone, z.instruction.mnemonic) == std::end(kZydisAlone)) {
    form.doubt = Doubt::kOneDecoderOnly;  // R2
  }
  if (is_zero_idiom(z)) use.reads &= ~reg(register_of(z.operands[0].reg.value));
  form.reads = use.reads;
  form.kills = use.kills;
  form.touches = use.touches;
  if (form.flow == Flow::kSystemCall) form.reads = kEverything;
  if (!take_memory_operands(z, form) && form.doubt == Doubt::kNone) form.doubt = Doubt::kUnsupported;
  if (form.doubt == Doubt::kNone && is_unsupported(z, layout, form)) form.doubt = Doubt::kUnsupported;
  return form;
}

Decoder::Decoder() : impl_(std::make_unique<Impl>()), table_(1u << 12) {}

Decoder::~Decoder() = default;

std::uint32_t Decoder::decode(std::span<const std::uint8_t> bytes) {
  const std::optional<Layout> layout = read_layout(bytes);
  if (!layout) {
    // One form for all that is no instruction; its key cannot be that of one.
    static constexpr FormKey kNone{};
    return intern(kNone, {}, Layout{});
  }
  return intern(form_key(bytes, *layout), bytes.first(layout->length), *layout);
}

std::uint32_t Decoder::intern(const FormKey& key, std::span<const std::uint8_t> bytes, const Layout& layout) {
  const std::size_t mask = table_.size() - 1;
  std::size_t slot = hash_key(key) & mask;
  while (table_[slot] != 0) {
    if (keys_[table_[slot] - 1] == key) return table_[slot] - 1;
    slot = (slot + 1) & mask;
  }
  Form form;
  if (!bytes.empty()) {
    // Displacement and immediate belong to no form: ones in their place, so that a scaled displacement shows its
    // scale and a shift count is not zero.
    std::array<std::uint8_t, kMaxInstructionBytes> probe{};
    std::copy(bytes.begin(), bytes.end(), probe.begin());
    std::fill_n(probe.begin() + layout.displacement_offset, layout.displacement_bytes, std::uint8_t{1});
    std::fill_n(probe.begin() + layout.immediate_offset, layout.immediate_bytes, std::uint8_t{1});
    form = impl_->judge(std::span(probe).first(layout.length), layout);
  }
  const auto number = static_cast<std::uint32_t>(forms_.size());
  forms_.push_back(form);
  keys_.push_back(key);
  table_[slot] = number + 1;
  if (forms_.size() * 2 > table_.size()) grow();
  return number;
}

void Decoder::grow() {
  std::vector<std::uint32_t> larger(table_.size() * 2);
  const std::size_t mask = larger.size() - 1;
  for (std::uint32_t number = 0; number < keys_.size(); ++number) {
    std::size_t slot = hash_key(keys_[number]) & mask;
    while (larger[slot] != 0) slot = (slot + 1) & mask;
    larger[slot] = number + 1;
  }
  table_ = std::move(larger);
}

Form Decoder::decode_afresh(std::span<const std::uint8_t> bytes) const {
  const std::optional<Layout> layout = read_layout(bytes);
  return layout ? impl_->judge(bytes.first(layout->length), *layout) : Form{};
}

const char* Decoder::mnemonic(const Form& form) const {
  const char* name = ZydisMnemonicGetString(static_cast<ZydisMnemonic>(form.mnemonic));
  return name != nullptr ? name : "?";
}

std::int64_t displacement(const Form& form, std::span<const std::uint8_t> bytes) {
  if (form.displacement_bytes == 0) return 0;
  return read_signed(bytes.data() + form.displacement_offset, form.displacement_bytes) * form.displacement_scale;
}

std::int64_t immediate(const Form& form, std::span<const std::uint8_t> bytes) {
  if (form.immediate_bytes == 0) return 0;
  return read_signed(bytes.data() + form.immediate_offset, form.immediate_bytes);
}

std::uint64_t branch_target(const Form& form, std::span<const std::uint8_t> bytes, std::uint64_t address) {
  return address + form.length + static_cast<std::uint64_t>(immediate(form, bytes));
}

std::uint64_t rip_relative_target(const Form& form, std::span<const std::uint8_t> bytes, std::uint64_t address) {
  return address + form.length + static_cast<std::uint64_t>(displacement(form, bytes));
}

RegSet kills(const Form& form, std::span<const std::uint8_t> bytes) {
  // Counts are taken modulo 32 or 64; 32 in a 64-bit shift counts as 0 here, which only costs precision.
  if (form.kills_need_immediate && (immediate(form, bytes) & 31) == 0) return form.kills & kAllRegisters;
  return form.kills;
}

}  // namespace penumbra::rewrite
