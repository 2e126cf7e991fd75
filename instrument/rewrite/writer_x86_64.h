// Machine code, byte by byte: the few instructions that checks, thunks and relocated code are made of.
//
// Positions are offsets into the code written so far. 32-bit relative operands are written as 0 and set by link(), once
// both ends are known.
//
// zone: hosted
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "instrument/rewrite/instruction.h"

namespace penumbra::rewrite {

class Writer {
 public:
  std::uint32_t position() const { return static_cast<std::uint32_t>(code_.size()); }
  // Nothing may be written afterwards.
  std::vector<std::uint8_t> take_code() { return std::move(code_); }
  void reserve(std::size_t bytes) { code_.reserve(bytes); }
  void align(std::uint32_t alignment);  // with int3

  void put(std::span<const std::uint8_t> bytes) { code_.insert(code_.end(), bytes.begin(), bytes.end()); }
  void put_byte(std::uint8_t byte) { code_.push_back(byte); }
  void put_32(std::uint32_t value);
  void set_32(std::uint32_t at, std::uint32_t value);

  // lea r, [base + index * scale + displacement]; base or index may be absent. Flags stay.
  void put_lea(Register r, Register base, Register index, std::uint8_t scale, std::int32_t displacement);
  void put_mov(Register to, Register from);
  void put_push(Register r);
  void put_pop(Register r);
  void put_shift_right_3(Register r);
  // cmp byte/word/dword/qword [r + displacement], 0
  void put_compare_zero(Register r, std::int32_t displacement, unsigned bytes);
  void put_lahf_seto();  // flags into ax
  void put_sahf();       // flags from ax, overflow included
  void put_pushfq() { put_byte(0x9c); }
  void put_popfq() { put_byte(0x9d); }
  // Over the red zone and back; flags stay.
  void put_red_zone_down();
  void put_red_zone_up();

  // Each returns where its 32-bit relative operand stands.
  std::uint32_t put_jump();
  std::uint32_t put_jump_if(std::uint8_t condition);
  std::uint32_t put_call_through();  // call [rip + x]
  // A no-operation that carries a number, for whoever returns in front of it to read.
  void put_number(std::uint32_t value);
  // Sets the operand at `operand` so that it names `target`, a position here.
  void link(std::uint32_t operand, std::uint32_t target) { set_32(operand, target - (operand + 4)); }

 private:
  void put_modrm(unsigned reg, Register base, Register index, std::uint8_t scale, std::int32_t displacement);

  std::vector<std::uint8_t> code_;
};

}  // namespace penumbra::rewrite
