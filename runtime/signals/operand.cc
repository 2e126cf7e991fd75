#include "runtime/signals/operand.h"

#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"

namespace penumbra::signals {
namespace {

// Longest x86 instruction (Intel SDM, volume 2, 2.3.11).
constexpr std::size_t kLongest = 15;

// Registers by their number in instructions.
constexpr int kRegister[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                               REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
constexpr unsigned kRsp = 4;
constexpr unsigned kRsi = 6;
constexpr unsigned kRdi = 7;

bool is_canonical(std::uintptr_t a) {
  return a < kUserAddressEnd || a >= ~std::uintptr_t{0} - kUserAddressEnd + 1;
}

struct Instruction {
  const std::uint8_t* at;
  const std::uint8_t* end;
  const greg_t* registers;
  unsigned map = 0;  // 0 one byte, 1 0f, 2 0f38, 3 0f3a
  std::uint8_t opcode = 0;
  bool rex_x = false;
  bool rex_b = false;
  bool operand_size = false;  // 66
  bool has_segment = false;
  bool has_short_address = false;
  bool is_evex = false;

  bool take(std::uint8_t& byte) {
    if (at == end) return false;
    byte = *at++;
    return true;
  }

  std::uintptr_t reg(unsigned number) const { return static_cast<std::uintptr_t>(registers[kRegister[number]]); }
};

bool take_prefixes(Instruction& i) {
  for (;;) {
    std::uint8_t byte;
    if (!i.take(byte)) return false;
    switch (byte) {
      case 0x66: i.operand_size = true; continue;
      case 0x67: i.has_short_address = true; continue;
      case 0x64:
      case 0x65: i.has_segment = true; continue;
      case 0x26:
      case 0x2e:
      case 0x36:
      case 0x3e:
      case 0xf0:
      case 0xf2:
      case 0xf3: continue;
      default: break;
    }
    if ((byte & 0xf0) == 0x40) {
      i.rex_x = (byte & 2) != 0;
      i.rex_b = (byte & 1) != 0;
      if (!i.take(byte)) return false;
    } else if (byte == 0xc5 || byte == 0xc4 || byte == 0x62) {
      // VEX and EVEX hold the map, inverted register bits and the opcode behind them.
      const std::uint8_t first = byte;
      if (!i.take(byte)) return false;
      i.map = 1;
      if (first != 0xc5) {
        i.rex_x = (byte & 0x40) == 0;
        i.rex_b = (byte & 0x20) == 0;
        i.map = byte & (first == 0x62 ? 7 : 0x1f);
        if (!i.take(byte)) return false;
        i.operand_size = (byte & 3) == 1;
      } else {
        i.operand_size = (byte & 3) == 1;
      }
      i.is_evex = first == 0x62;
      if (i.is_evex && !i.take(byte)) return false;
      return i.take(i.opcode) && i.map >= 1 && i.map <= 3;
    }
    if (byte != 0x0f) {
      i.opcode = byte;
      return true;
    }
    i.map = 1;
    if (!i.take(i.opcode)) return false;
    if (i.opcode == 0x38 || i.opcode == 0x3a) {
      i.map = i.opcode == 0x38 ? 2 : 3;
      return i.take(i.opcode);
    }
    return true;
  }
}

bool has_modrm(const Instruction& i) {
  const unsigned op = i.opcode;
  if (i.map >= 2) return true;
  if (i.map == 1) {
    return !(op == 0x05 || op == 0x06 || op == 0x07 || op == 0x08 || op == 0x09 || op == 0x0b || op == 0x0e ||
             (op >= 0x30 && op <= 0x37) || op == 0x77 || (op >= 0x80 && op <= 0x8f) || (op >= 0xa0 && op <= 0xa2) ||
             (op >= 0xa8 && op <= 0xaa) || (op >= 0xc8 && op <= 0xcf));
  }
  return (op < 0x40 && (op & 7) < 4) || op == 0x63 || op == 0x69 || op == 0x6b || (op >= 0x80 && op <= 0x8f) ||
         op == 0xc0 || op == 0xc1 || op == 0xc6 || op == 0xc7 || (op >= 0xd0 && op <= 0xd3) ||
         (op >= 0xd8 && op <= 0xdf) || op == 0xf6 || op == 0xf7 || op == 0xfe || op == 0xff;
}

// Does an instruction with a memory operand write to it? `extension` is the reg field of ModRM.
bool writes(const Instruction& i, unsigned extension) {
  const unsigned op = i.opcode;
  if (i.map == 1) {
    return op == 0x11 || op == 0x13 || op == 0x17 || op == 0x29 || op == 0x2b || (op == 0x7e && i.operand_size) ||
           op == 0x7f || (op >= 0x90 && op <= 0x9f) || op == 0xab || op == 0xb0 || op == 0xb1 || op == 0xb3 ||
           op == 0xbb || op == 0xc0 || op == 0xc1 || op == 0xc3 || op == 0xc7 || op == 0xd6 || op == 0xe7;
  }
  if (i.map == 3) return op >= 0x14 && op <= 0x17;  // pextr, extractps
  if (i.map == 2) return false;
  if (op < 0x38) return (op & 7) < 2;
  if (op >= 0x80 && op <= 0x83) return extension != 7;
  if (op == 0xf6 || op == 0xf7) return extension == 2 || extension == 3;
  if (op == 0xfe || op == 0xff) return extension < 2;
  return (op >= 0x86 && op <= 0x89) || op == 0x8c || op == 0x8f || op == 0xc0 || op == 0xc1 || op == 0xc6 ||
         op == 0xc7 || (op >= 0xd0 && op <= 0xd3);
}

Operand judged(std::uintptr_t address, bool is_write) {
  return {is_canonical(address) ? OperandKind::kNone : OperandKind::kNonCanonical, AppAddr(address), is_write};
}

bool take_displacement(Instruction& i, unsigned bytes, std::int64_t& value) {
  std::uint32_t bits = 0;
  for (unsigned n = 0; n < bytes; ++n) {
    std::uint8_t byte;
    if (!i.take(byte)) return false;
    bits |= static_cast<std::uint32_t>(byte) << (8 * n);
  }
  value = bytes == 1 ? static_cast<std::int8_t>(bits) : static_cast<std::int32_t>(bits);
  return true;
}

Operand modrm_operand(Instruction& i) {
  std::uint8_t modrm;
  if (!i.take(modrm)) return {};
  const unsigned mod = modrm >> 6;
  const unsigned extension = (modrm >> 3) & 7;
  unsigned base = modrm & 7;
  if (mod == 3) {
    // A call or jump through a register to where no code can be.
    if (i.map == 0 && i.opcode == 0xff && (extension == 2 || extension == 4)) {
      return judged(i.reg(base + (i.rex_b ? 8 : 0)), false);
    }
    return {OperandKind::kNone, AppAddr(), false};
  }
  if (i.has_segment || i.has_short_address || (i.is_evex && mod == 1)) return {};
  std::uintptr_t address = 0;
  bool has_base = true;
  if (base == 4) {
    std::uint8_t sib;
    if (!i.take(sib)) return {};
    const unsigned index = ((sib >> 3) & 7) + (i.rex_x ? 8 : 0);
    base = sib & 7;
    if (index != kRsp) address += i.reg(index) << (sib >> 6);
    if (base == 5 && mod == 0) has_base = false;
  } else if (base == 5 && mod == 0) {
    return {OperandKind::kNone, AppAddr(), false};  // relative to rip, which is canonical
  }
  if (has_base) address += i.reg(base + (i.rex_b ? 8 : 0));
  std::int64_t displacement = 0;
  const unsigned bytes = mod == 1 ? 1 : mod == 2 || !has_base ? 4 : 0;
  if (!take_displacement(i, bytes, displacement)) return {};
  return judged(address + static_cast<std::uintptr_t>(displacement), writes(i, extension));
}

}  // namespace

Operand decode_operand(const std::uint8_t* code, std::size_t length, const greg_t* registers,
                       bool (*load)(AppAddr, std::uintptr_t&)) {
  Instruction i{code, code + length, registers};
  if (!take_prefixes(i)) return {};
  if (has_modrm(i)) return modrm_operand(i);
  if (i.map != 0) return {OperandKind::kNone, AppAddr(), false};
  switch (i.opcode) {
    case 0xa4:
    case 0xa5: {  // movs
      const Operand from = judged(i.reg(kRsi), false);
      return from.kind == OperandKind::kNonCanonical ? from : judged(i.reg(kRdi), true);
    }
    case 0xa6:
    case 0xa7: {  // cmps
      const Operand left = judged(i.reg(kRsi), false);
      return left.kind == OperandKind::kNonCanonical ? left : judged(i.reg(kRdi), false);
    }
    case 0xaa:
    case 0xab: return judged(i.reg(kRdi), true);  // stos
    case 0xac:
    case 0xad: return judged(i.reg(kRsi), false);  // lods
    case 0xae:
    case 0xaf: return judged(i.reg(kRdi), false);  // scas
    case 0xc2:
    case 0xc3: {  // ret: a good stack with a bad return address, or a bad stack
      std::uintptr_t target;
      if (!is_canonical(i.reg(kRsp))) return judged(i.reg(kRsp), false);
      if (!load(AppAddr(i.reg(kRsp)), target)) return {};
      return judged(target, false);
    }
    case 0xe8: return judged(i.reg(kRsp) - 8, true);
    case 0xc9: return judged(i.reg(5), false);  // leave
    default: break;
  }
  if (i.opcode >= 0x50 && i.opcode <= 0x57) return judged(i.reg(kRsp) - 8, true);
  if (i.opcode >= 0x58 && i.opcode <= 0x5f) return judged(i.reg(kRsp), false);
  return {OperandKind::kNone, AppAddr(), false};
}

Operand non_canonical_operand(const ucontext_t& context) {
  const greg_t* const registers = context.uc_mcontext.gregs;
  const AppAddr pc(static_cast<std::uintptr_t>(registers[REG_RIP]));
  std::uint8_t code[kLongest];
  std::size_t length = kLongest;
  // The instruction may end where its mapping does.
  if (!os::try_read_memory(pc, code, length)) {
    length = kPageSize - pc.value % kPageSize;
    if (length > kLongest || !os::try_read_memory(pc, code, length)) return {};
  }
  return decode_operand(code, length, registers, [](AppAddr from, std::uintptr_t& word) {
    return os::try_read_memory(from, &word, sizeof word);
  });
}

}  // namespace penumbra::signals
