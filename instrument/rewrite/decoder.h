// Decoding that believes nobody alone: Capstone and Zydis are both asked for every form, our own reading of the
// encoding (layout.h) is the third witness, and where they differ a rule below says who is right or the form is
// doubted. Code with a doubted form stays as it is and is counted.
//
// Rules, each with its test:
//  R1  The end of an instruction: all three agree.
//  R2  An instruction that Capstone 4.0.2 does not know is believed from Zydis where R1 holds with our own reading and
//      it is VEX or EVEX encoded (AVX-512, VBMI2, VAES, GFNI, mask registers), or one of a short list (kZydisAlone).
//  R3  Registers and flags: read is what either says is read; overwritten is only what both say is overwritten whole
//      and always; changed is what either says may change. A wrong claim of one then costs precision, never liveness.
//      Zero idioms (xor, sub of a register with itself, 32 bits or more) read nothing.
//  R4  Flags that an instruction leaves alone when a count is zero (shifts and rotates by cl, rep cmps/scas) and
//      registers that stay when a source is zero (bsf, bsr) or a condition fails (cmov) are changed, not overwritten.
//  R5  Direction of a memory operand: Zydis. (Capstone calls stores by mov*ps, mov*dq*, set*, fst*, rol and others reads.)
//  R6  Size of a memory operand: Zydis. (Capstone takes the register's size in comisd, punpckldq, fnstsw, clflush.)
//  R7  Index of an EVEX operand that is no gather or scatter: Zydis. (Capstone applies V' to it and names a vector.)
//  R8  Operands of string instructions are implicit for Zydis and explicit for Capstone; both must name rsi and rdi.
//  R9  The address of mov moffs is 64 bits: Zydis shows it as signed 64, Capstone truncates. It has no registers.
//  R10 Index of an EVEX gather or scatter: Zydis. (Capstone names a general register in vpscatterdd.)
//  R11 Elements that a mask leaves out are not touched, but for loads of the exception classes without fault suppression
//      (E4NF and its like: permutations, unpacking), which read their whole operand.
//
// One Decoder serves one thread.
//
// zone: hosted
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "instrument/rewrite/instruction.h"
#include "instrument/rewrite/layout.h"

namespace penumbra::rewrite {

class Decoder {
 public:
  Decoder();
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // The number of the form of the instruction at the begin of `bytes`, making the form when it is new. Never fails:
  // look at form(n).doubt. A form that ends past the bytes, or of which no length is known, has length 0.
  std::uint32_t decode(std::span<const std::uint8_t> bytes);

  const Form& form(std::uint32_t number) const { return forms_[number]; }
  std::size_t forms() const { return forms_.size(); }

  // Asks both decoders about exactly these bytes, past the table. For tests that hold the table against it.
  Form decode_afresh(std::span<const std::uint8_t> bytes) const;

  const char* mnemonic(const Form& form) const;

 private:
  struct Impl;

  std::uint32_t intern(const FormKey& key, std::span<const std::uint8_t> bytes, const Layout& layout);
  void grow();

  std::unique_ptr<Impl> impl_;
  std::vector<Form> forms_;
  std::vector<FormKey> keys_;
  std::vector<std::uint32_t> table_;  // open addressing; form number + 1, 0 is empty
};

// Displacement and immediate of an instruction whose bytes these are, sign extended; EVEX displacements scaled.
std::int64_t displacement(const Form& form, std::span<const std::uint8_t> bytes);
std::int64_t immediate(const Form& form, std::span<const std::uint8_t> bytes);
// Where a direct jump or call goes, and what a rip-relative operand names, for an instruction at `address`.
std::uint64_t branch_target(const Form& form, std::span<const std::uint8_t> bytes, std::uint64_t address);
std::uint64_t rip_relative_target(const Form& form, std::span<const std::uint8_t> bytes, std::uint64_t address);
// Flags and registers overwritten whole, with the immediate taken into account (a shift by 0 leaves the flags).
RegSet kills(const Form& form, std::span<const std::uint8_t> bytes);

}  // namespace penumbra::rewrite
