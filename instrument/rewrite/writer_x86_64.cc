#include "instrument/rewrite/writer_x86_64.h"

#include <bit>
#include <cstring>

namespace penumbra::rewrite {
namespace {

constexpr std::uint8_t kRexW = 0x48;

unsigned high(Register r) {
  return r >= kR8 ? 1 : 0;
}

unsigned low(Register r) {
  return static_cast<unsigned>(r) & 7;
}

}  // namespace

void Writer::align(std::uint32_t alignment) {
  while (position() % alignment != 0) put_byte(0xcc);
}

void Writer::put_32(std::uint32_t value) {
  for (unsigned i = 0; i < 4; ++i) put_byte(static_cast<std::uint8_t>(value >> (8 * i)));
}

void Writer::set_32(std::uint32_t at, std::uint32_t value) {
  std::memcpy(code_.data() + at, &value, sizeof value);
}

void Writer::put_modrm(unsigned reg, Register base, Register index, std::uint8_t scale, std::int32_t displacement) {
  const unsigned reg_bits = (reg & 7) << 3;
  const unsigned scale_bits = static_cast<unsigned>(std::countr_zero(scale)) << 6;
  if (base < 0) {
    // No base: a SIB byte with base 5 under mod 0, always with 32 bits of displacement.
    const unsigned index_bits = index < 0 ? 4u << 3 : low(index) << 3;
    put_byte(static_cast<std::uint8_t>(reg_bits | 4));
    put_byte(static_cast<std::uint8_t>(scale_bits | index_bits | 5));
    put_32(static_cast<std::uint32_t>(displacement));
    return;
  }
  // Base 5 (rbp, r13) under mod 0 would mean rip or none; base 4 (rsp, r12) needs a SIB byte.
  const unsigned mod = displacement == 0 && low(base) != 5 ? 0 : displacement >= -128 && displacement < 128 ? 1 : 2;
  if (index >= 0 || low(base) == 4) {
    const unsigned index_bits = index < 0 ? 4u << 3 : low(index) << 3;
    put_byte(static_cast<std::uint8_t>(mod << 6 | reg_bits | 4));
    put_byte(static_cast<std::uint8_t>((index < 0 ? 0 : scale_bits) | index_bits | low(base)));
  } else {
    put_byte(static_cast<std::uint8_t>(mod << 6 | reg_bits | low(base)));
  }
  if (mod == 1) put_byte(static_cast<std::uint8_t>(displacement));
  if (mod == 2) put_32(static_cast<std::uint32_t>(displacement));
}

void Writer::put_lea(Register r, Register base, Register index, std::uint8_t scale, std::int32_t displacement) {
  if (index < 0 && base >= 0 && displacement == 0) {
    if (r != base) put_mov(r, base);
    return;
  }
  put_byte(static_cast<std::uint8_t>(kRexW | high(r) << 2 | (index >= 0 ? high(index) << 1 : 0) |
                                     (base >= 0 ? high(base) : 0)));
  put_byte(0x8d);
  put_modrm(low(r), base, index, scale, displacement);
}

void Writer::put_mov(Register to, Register from) {
  put_byte(static_cast<std::uint8_t>(kRexW | high(from) << 2 | high(to)));
  put_byte(0x89);
  put_byte(static_cast<std::uint8_t>(0xc0 | low(from) << 3 | low(to)));
}

void Writer::put_push(Register r) {
  if (high(r) != 0) put_byte(0x41);
  put_byte(static_cast<std::uint8_t>(0x50 | low(r)));
}

void Writer::put_pop(Register r) {
  if (high(r) != 0) put_byte(0x41);
  put_byte(static_cast<std::uint8_t>(0x58 | low(r)));
}

void Writer::put_shift_right_3(Register r) {
  put_byte(static_cast<std::uint8_t>(kRexW | high(r)));
  put_byte(0xc1);
  put_byte(static_cast<std::uint8_t>(0xe8 | low(r)));
  put_byte(3);
}

void Writer::put_compare_zero(Register r, std::int32_t displacement, unsigned bytes) {
  if (bytes == 2) put_byte(0x66);
  const auto rex = static_cast<std::uint8_t>((bytes == 8 ? kRexW : 0x40) | high(r));
  if (rex != 0x40) put_byte(rex);
  put_byte(bytes == 1 ? 0x80 : 0x83);
  put_byte(static_cast<std::uint8_t>(0x80 | 7 << 3 | low(r)));  // mod 2, /7
  if (low(r) == 4) put_byte(0x24);
  put_32(static_cast<std::uint32_t>(displacement));
  put_byte(0);
}

void Writer::put_lahf_seto() {
  static constexpr std::uint8_t kCode[] = {0x9f, 0x0f, 0x90, 0xc0};
  put(kCode);
}

// al is 0 or 1: adding 0x7f overflows exactly when it is 1. sahf then sets the others from ah.
void Writer::put_sahf() {
  static constexpr std::uint8_t kCode[] = {0x04, 0x7f, 0x9e};
  put(kCode);
}

void Writer::put_red_zone_down() {
  static constexpr std::uint8_t kCode[] = {0x48, 0x8d, 0x64, 0x24, 0x80};  // lea rsp, [rsp-128]
  put(kCode);
}

void Writer::put_red_zone_up() {
  static constexpr std::uint8_t kCode[] = {0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0};  // lea rsp, [rsp+128]
  put(kCode);
}

std::uint32_t Writer::put_jump() {
  put_byte(0xe9);
  put_32(0);
  return position() - 4;
}

std::uint32_t Writer::put_jump_if(std::uint8_t condition) {
  put_byte(0x0f);
  put_byte(static_cast<std::uint8_t>(0x80 | condition));
  put_32(0);
  return position() - 4;
}

std::uint32_t Writer::put_call_through() {
  put_byte(0xff);
  put_byte(0x15);
  put_32(0);
  return position() - 4;
}

void Writer::put_number(std::uint32_t value) {
  put_byte(0x0f);
  put_byte(0x1f);
  put_byte(0x80);  // nop dword [rax + value]
  put_32(value);
}

}  // namespace penumbra::rewrite
