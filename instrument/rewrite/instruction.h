// What the rewriter knows about an instruction: its form, shared by all instructions that differ only in displacement
// and immediate, and its place.
//
// libLLVM has 20 million instructions but some hundred thousand forms, so everything that is costly to find out, and
// everything two decoders must agree on, is kept per form. An instruction itself is eight bytes; displacement,
// immediate and branch target are read from the text when they are asked for.
//
// zone: hosted
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/base/module_format.h"

namespace penumbra::rewrite {

// Registers and flags as one set: bits 0..15 the general registers by encoding (rax rcx rdx rbx rsp rbp rsi rdi
// r8..r15), then the flags.
using RegSet = std::uint32_t;

enum Register : std::int8_t {
  kRax,
  kRcx,
  kRdx,
  kRbx,
  kRsp,
  kRbp,
  kRsi,
  kRdi,
  kR8,
  kR9,
  kR10,
  kR11,
  kR12,
  kR13,
  kR14,
  kR15,
  kNoRegister = -1,
  kRip = -2,
  kVector = -3,  // the vector index of a gather or scatter
};

constexpr RegSet reg(Register r) {
  return r >= 0 ? RegSet{1} << r : 0;
}

inline constexpr RegSet kCarry = 1u << 16;
inline constexpr RegSet kParity = 1u << 17;
inline constexpr RegSet kAdjust = 1u << 18;
inline constexpr RegSet kZero = 1u << 19;
inline constexpr RegSet kSign = 1u << 20;
inline constexpr RegSet kOverflow = 1u << 21;
inline constexpr RegSet kDirection = 1u << 22;
inline constexpr RegSet kAllRegisters = 0xffff;
inline constexpr RegSet kArithmeticFlags = kCarry | kParity | kAdjust | kZero | kSign | kOverflow;
inline constexpr RegSet kEverything = kAllRegisters | kArithmeticFlags | kDirection;

// What an instruction does to registers and flags.
struct RegisterUse {
  RegSet reads = 0;
  RegSet kills = 0;    // overwritten whole, whatever happens
  RegSet touches = 0;  // may change
};

// How control leaves an instruction.
enum class Flow : std::uint8_t {
  kNext,
  kConditionalJump,
  kCountedJump,  // jrcxz, jecxz, loop*: eight bits of reach only
  kJump,
  kIndirectJump,
  kCall,
  kIndirectCall,
  kReturn,
  kTrap,        // ud2, hlt, int3: control does not come back by itself
  kSystemCall,  // syscall, sysenter, int n: the kernel may look at every register
};

// Why an access needs more than "size bytes at the effective address".
enum class AccessShape : std::uint8_t {
  kPlain,
  kString,     // rsi/rdi; with a rep prefix rcx elements from there on, in the direction flag's direction
  kMasked,     // only the elements that a mask chooses
  kGathered,   // one address per element, of those that a mask chooses
  kBitString,  // bt/bts/btr/btc with a register: base + (register >> 3)
  kTable,      // xlat: rbx + al
  kState,      // xsave and relatives: a size that the processor's state decides
  kKernel,     // of a system call: what its arguments say
};
// The slot that push, pop, call and ret touch at rsp is no operand here: stack slots at rsp are never checked.

struct MemoryOperand {
  Register base = kNoRegister;
  Register index = kNoRegister;
  std::uint8_t scale = 1;
  std::uint8_t segment = 0;  // 0, or 4 for fs, 5 for gs (their encodings)
  std::uint16_t size = 0;    // bytes of one access; of one element for strings and gathers
  AccessShape shape = AccessShape::kPlain;
  bool is_read = false;
  bool is_write = false;
  bool has_displacement = false;  // the instruction's displacement belongs to this operand
  ElementChoice choice;           // of a masked or gathered operand
};

// Why a form is not believed; code with such a form stays unrewritten and is counted.
enum class Doubt : std::uint8_t {
  kNone,
  kUndecodable,     // no decoder knows it
  kLength,          // the decoders, or our own reading of the encoding, disagree where it ends
  kOneDecoderOnly,  // one decoder knows it and no rule says to believe it
  kControlFlow,     // the decoders disagree where it goes
  kMemoryOperands,  // the decoders disagree what it touches
  kUnsupported,     // agreed on, but nothing we relocate: far transfers, xbegin, address-size overrides
};

struct Form {
  std::uint8_t length = 0;
  Flow flow = Flow::kNext;
  Doubt doubt = Doubt::kUndecodable;
  std::uint8_t displacement_offset = 0;  // from the instruction's begin; 0 when there is none
  std::uint8_t displacement_bytes = 0;
  std::uint8_t displacement_scale = 1;  // EVEX disp8*N
  std::uint8_t immediate_offset = 0;
  std::uint8_t immediate_bytes = 0;
  std::uint8_t condition = 0;      // of a conditional jump: the low four bits of its opcode
  std::uint8_t operand_count = 0;  // memory operands that touch memory
  bool is_rip_relative = false;
  bool has_rep = false;
  bool is_nop = false;
  bool is_wide_address = false;       // lea of a rip-relative address: a candidate for a jump table
  bool kills_need_immediate = false;  // a shift by an immediate: flags are written unless the count is 0
  std::uint16_t mnemonic = 0;         // Zydis's number
  RegSet reads = 0;                   // what either decoder says is read
  RegSet kills = 0;                   // what both say is overwritten whole, whatever happens
  RegSet touches = 0;                 // what either says may change
  std::array<MemoryOperand, 2> operands;
};

struct Instruction {
  std::uint32_t offset = 0;  // of its first byte from the begin of the text it was decoded from
  std::uint32_t form = 0;
};

static_assert(sizeof(Instruction) == 8);

}  // namespace penumbra::rewrite
