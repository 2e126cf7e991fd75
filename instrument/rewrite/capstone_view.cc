#include "instrument/rewrite/capstone_view.h"

namespace penumbra::rewrite {

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

namespace {

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

}  // namespace

CapstoneView::CapstoneView(csh handle)
    : library_(capstone_library()), handle_(handle), instruction_(library_.malloc(handle)) {}

CapstoneView::~CapstoneView() {
  library_.free(instruction_, 1);
}

bool CapstoneView::decode(std::span<const std::uint8_t> bytes) {
  const std::uint8_t* code = bytes.data();
  std::size_t size = bytes.size();
  std::uint64_t address = kProbeAddress;
  return library_.disasm_iter(handle_, &code, &size, &address, instruction_);
}

RegisterUse CapstoneView::use() const {
  RegisterUse use;
  cs_regs read;
  cs_regs written;
  std::uint8_t reads = 0;
  std::uint8_t writes = 0;
  library_.regs_access(handle_, instruction_, read, &reads, written, &writes);
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

}  // namespace penumbra::rewrite
