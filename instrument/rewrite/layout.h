// Where the parts of an x86-64 instruction lie, read from the encoding alone: prefixes, opcode, ModRM, SIB,
// displacement, immediate.
//
// A third witness beside Capstone and Zydis, and the key of the form table: two instructions whose bytes agree but for
// displacement and immediate are of one form. The tables follow the opcode maps of Intel's manual, volume 2, appendix A.
//
// zone: hosted
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace penumbra::rewrite {

inline constexpr std::size_t kMaxInstructionBytes = 15;

struct Layout {
  std::uint8_t length = 0;
  std::uint8_t displacement_offset = 0;  // 0 when there is none
  std::uint8_t displacement_bytes = 0;
  std::uint8_t immediate_offset = 0;  // 0 when there is none; two immediates (enter) count as one
  std::uint8_t immediate_bytes = 0;
  bool is_vex = false;  // VEX or EVEX encoded
  bool is_evex = false;
  bool has_address_override = false;  // prefix 67: 32-bit addressing
};

// Nothing where the bytes end too early, are no instruction of 64-bit mode in the maps known here (3DNow! and XOP
// are not), or are longer than 15 bytes.
std::optional<Layout> read_layout(std::span<const std::uint8_t> bytes);

// The bytes of an instruction with displacement and immediate taken out, and its length: what its form hangs on.
struct FormKey {
  std::array<std::uint8_t, 16> bytes{};

  bool operator==(const FormKey&) const = default;
};

FormKey form_key(std::span<const std::uint8_t> bytes, const Layout& layout);

}  // namespace penumbra::rewrite
