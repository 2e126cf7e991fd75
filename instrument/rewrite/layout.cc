#include "instrument/rewrite/layout.h"

#include <algorithm>
#include <bitset>

namespace penumbra::rewrite {
namespace {

// What follows an opcode besides ModRM. Sizes in bytes; z is 2 with an operand-size prefix, else 4.
enum class Immediate : std::uint8_t { kNone, kByte, kWord, kZ, kFull, kEnter, kOffset };

struct OpcodeMap {
  std::bitset<256> defined;
  std::bitset<256> modrm;
  std::array<Immediate, 256> immediate{};

  constexpr void range(unsigned first, unsigned last, bool has_modrm, Immediate imm = Immediate::kNone) {
    for (unsigned op = first; op <= last; ++op) {
      defined.set(op);
      modrm.set(op, has_modrm);
      immediate[op] = imm;
    }
  }
};

// One-byte opcodes. Prefixes, and what 64-bit mode took away (06 0e 16 1e 27 2f 37 3f 60..62 82 9a ce d4..d6 ea),
// stay undefined here.
OpcodeMap make_primary_map() {
  OpcodeMap map;
  for (unsigned row = 0; row < 0x40; row += 8) {
    map.range(row, row + 3, true);
    map.range(row + 4, row + 4, false, Immediate::kByte);
    map.range(row + 5, row + 5, false, Immediate::kZ);
  }
  map.range(0x50, 0x5f, false);
  map.range(0x63, 0x63, true);
  map.range(0x68, 0x68, false, Immediate::kZ);
  map.range(0x69, 0x69, true, Immediate::kZ);
  map.range(0x6a, 0x6a, false, Immediate::kByte);
  map.range(0x6b, 0x6b, true, Immediate::kByte);
  map.range(0x6c, 0x6f, false);
  map.range(0x70, 0x7f, false, Immediate::kByte);
  map.range(0x80, 0x80, true, Immediate::kByte);
  map.range(0x81, 0x81, true, Immediate::kZ);
  map.range(0x83, 0x83, true, Immediate::kByte);
  map.range(0x84, 0x8f, true);
  map.range(0x90, 0x99, false);
  map.range(0x9b, 0x9f, false);
  map.range(0xa0, 0xa3, false, Immediate::kOffset);
  map.range(0xa4, 0xa7, false);
  map.range(0xa8, 0xa8, false, Immediate::kByte);
  map.range(0xa9, 0xa9, false, Immediate::kZ);
  map.range(0xaa, 0xaf, false);
  map.range(0xb0, 0xb7, false, Immediate::kByte);
  map.range(0xb8, 0xbf, false, Immediate::kFull);
  map.range(0xc0, 0xc1, true, Immediate::kByte);
  map.range(0xc2, 0xc2, false, Immediate::kWord);
  map.range(0xc3, 0xc3, false);
  map.range(0xc6, 0xc6, true, Immediate::kByte);
  map.range(0xc7, 0xc7, true, Immediate::kZ);
  map.range(0xc8, 0xc8, false, Immediate::kEnter);
  map.range(0xc9, 0xc9, false);
  map.range(0xca, 0xca, false, Immediate::kWord);
  map.range(0xcb, 0xcc, false);
  map.range(0xcd, 0xcd, false, Immediate::kByte);
  map.range(0xcf, 0xcf, false);
  map.range(0xd0, 0xd3, true);
  map.range(0xd7, 0xd7, false);
  map.range(0xd8, 0xdf, true);
  map.range(0xe0, 0xe7, false, Immediate::kByte);
  map.range(0xe8, 0xe9, false, Immediate::kZ);
  map.range(0xeb, 0xeb, false, Immediate::kByte);
  map.range(0xec, 0xef, false);
  map.range(0xf1, 0xf1, false);
  map.range(0xf4, 0xf5, false);
  map.range(0xf6, 0xf7, true);  // immediates depend on ModRM.reg, see below
  map.range(0xf8, 0xfd, false);
  map.range(0xfe, 0xff, true);
  return map;
}

// Opcodes behind 0f. Undefined stay 0f0f (3DNow!: its opcode stands behind the displacement) and 0f20..0f23 (moves to
// control and debug registers: privileged, and their ModRM never means memory).
OpcodeMap make_secondary_map() {
  OpcodeMap map;
  map.range(0x00, 0x03, true);
  map.range(0x05, 0x09, false);
  map.range(0x0b, 0x0b, false);
  map.range(0x0d, 0x0d, true);
  map.range(0x0e, 0x0e, false);
  map.range(0x10, 0x1f, true);
  map.range(0x28, 0x2f, true);
  map.range(0x30, 0x37, false);
  map.range(0x40, 0x6f, true);
  map.range(0x70, 0x73, true, Immediate::kByte);
  map.range(0x74, 0x76, true);
  map.range(0x77, 0x77, false);
  map.range(0x78, 0x7f, true);
  map.range(0x80, 0x8f, false, Immediate::kZ);
  map.range(0x90, 0x9f, true);
  map.range(0xa0, 0xa2, false);
  map.range(0xa3, 0xa3, true);
  map.range(0xa4, 0xa4, true, Immediate::kByte);
  map.range(0xa5, 0xa5, true);
  map.range(0xa8, 0xaa, false);
  map.range(0xab, 0xab, true);
  map.range(0xac, 0xac, true, Immediate::kByte);
  map.range(0xad, 0xb9, true);
  map.range(0xba, 0xba, true, Immediate::kByte);
  map.range(0xbb, 0xc1, true);
  map.range(0xc2, 0xc2, true, Immediate::kByte);
  map.range(0xc3, 0xc3, true);
  map.range(0xc4, 0xc6, true, Immediate::kByte);
  map.range(0xc7, 0xc7, true);
  map.range(0xc8, 0xcf, false);
  map.range(0xd0, 0xff, true);
  return map;
}

const OpcodeMap& primary_map() {
  static const OpcodeMap map = make_primary_map();
  return map;
}

const OpcodeMap& secondary_map() {
  static const OpcodeMap map = make_secondary_map();
  return map;
}

// Reads bytes and remembers whether they ran out.
class Cursor {
 public:
  explicit Cursor(std::span<const std::uint8_t> bytes)
      : bytes_(bytes.first(std::min(bytes.size(), kMaxInstructionBytes))) {}

  std::uint8_t peek() const { return at_ < bytes_.size() ? bytes_[at_] : 0; }

  std::uint8_t next() {
    const std::uint8_t byte = peek();
    skip(1);
    return byte;
  }

  void skip(std::size_t count) {
    at_ += count;
    if (at_ > bytes_.size()) ran_out_ = true;
  }

  bool ran_out() const { return ran_out_; }
  std::size_t at() const { return at_; }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
  bool ran_out_ = false;
};

bool is_legacy_prefix(std::uint8_t byte) {
  switch (byte) {
    case 0x26:
    case 0x2e:
    case 0x36:
    case 0x3e:
    case 0x64:
    case 0x65:
    case 0x66:
    case 0x67:
    case 0xf0:
    case 0xf2:
    case 0xf3: return true;
    default: return false;
  }
}

// ModRM, SIB and displacement.
void read_modrm(Cursor& cursor, Layout& layout) {
  const std::uint8_t modrm = cursor.next();
  const unsigned mod = modrm >> 6;
  const unsigned rm = modrm & 7;
  if (mod == 3) return;
  unsigned bytes = mod == 1 ? 1 : mod == 2 ? 4 : 0;
  if (rm == 4) {
    const std::uint8_t sib = cursor.next();
    if (mod == 0 && (sib & 7) == 5) bytes = 4;
  } else if (mod == 0 && rm == 5) {
    bytes = 4;
  }
  if (bytes == 0) return;
  layout.displacement_offset = static_cast<std::uint8_t>(cursor.at());
  layout.displacement_bytes = static_cast<std::uint8_t>(bytes);
  cursor.skip(bytes);
}

unsigned immediate_bytes(Immediate immediate, bool operand_override, bool rex_w, bool address_override) {
  switch (immediate) {
    case Immediate::kNone: return 0;
    case Immediate::kByte: return 1;
    case Immediate::kWord: return 2;
    case Immediate::kZ: return operand_override && !rex_w ? 2 : 4;
    case Immediate::kFull: return rex_w ? 8 : operand_override ? 2 : 4;
    case Immediate::kEnter: return 3;
    case Immediate::kOffset: return address_override ? 4 : 8;
  }
  return 0;
}

std::optional<Layout> finish(Cursor& cursor, Layout layout, unsigned bytes) {
  if (bytes != 0) {
    layout.immediate_offset = static_cast<std::uint8_t>(cursor.at());
    layout.immediate_bytes = static_cast<std::uint8_t>(bytes);
    cursor.skip(bytes);
  }
  if (cursor.ran_out()) return std::nullopt;
  layout.length = static_cast<std::uint8_t>(cursor.at());
  return layout;
}

// VEX (c4, c5) and EVEX (62): every opcode has a ModRM but vzeroupper/vzeroall; map 3 always has an immediate.
std::optional<Layout> read_vex(Cursor& cursor, Layout layout, std::uint8_t first) {
  layout.is_vex = true;
  layout.is_evex = first == 0x62;
  unsigned map = 1;
  if (first == 0xc5) {
    cursor.skip(1);
  } else {
    map = cursor.next() & (layout.is_evex ? 0x07 : 0x1f);
    cursor.skip(layout.is_evex ? 2 : 1);
  }
  if (map < 1 || map > 3) return std::nullopt;
  const std::uint8_t opcode = cursor.next();
  if (map == 1 && (opcode & 0xf0) == 0x80) return std::nullopt;  // jkzd, jknzd: Knights Corner only
  if (map == 1 && opcode == 0x77 && !layout.is_evex) return finish(cursor, layout, 0);
  read_modrm(cursor, layout);
  const bool has_immediate = map == 3 || (map == 1 && secondary_map().immediate[opcode] == Immediate::kByte);
  return finish(cursor, layout, has_immediate ? 1 : 0);
}

}  // namespace

std::optional<Layout> read_layout(std::span<const std::uint8_t> bytes) {
  Cursor cursor(bytes);
  Layout layout;
  bool operand_override = false;
  while (is_legacy_prefix(cursor.peek()) && !cursor.ran_out()) {
    const std::uint8_t prefix = cursor.next();
    operand_override |= prefix == 0x66;
    layout.has_address_override |= prefix == 0x67;
  }
  bool rex_w = false;
  if ((cursor.peek() & 0xf0) == 0x40) rex_w = (cursor.next() & 8) != 0;
  const std::uint8_t opcode = cursor.next();
  if (opcode == 0xc4 || opcode == 0xc5 || opcode == 0x62) return read_vex(cursor, layout, opcode);
  if (opcode != 0x0f) {
    if (!primary_map().defined[opcode]) return std::nullopt;
    Immediate immediate = primary_map().immediate[opcode];
    if (opcode == 0xf6 || opcode == 0xf7) {
      const bool is_test = ((cursor.peek() >> 3) & 7) < 2;
      if (is_test) immediate = opcode == 0xf6 ? Immediate::kByte : Immediate::kZ;
    }
    // A near branch ignores the operand-size prefix on Intel and honours it on AMD: nobody believes it. With REX.W,
    // as linkers pad calls of __tls_get_addr, both agree.
    if (operand_override && !rex_w && (opcode == 0xe8 || opcode == 0xe9)) return std::nullopt;
    if (opcode == 0x8f && ((cursor.peek() >> 3) & 7) != 0) return std::nullopt;  // XOP
    if (primary_map().modrm[opcode]) read_modrm(cursor, layout);
    return finish(cursor, layout, immediate_bytes(immediate, operand_override, rex_w, layout.has_address_override));
  }
  const std::uint8_t second = cursor.next();
  if (second == 0x38 || second == 0x3a) {
    cursor.skip(1);
    read_modrm(cursor, layout);
    return finish(cursor, layout, second == 0x3a ? 1 : 0);
  }
  if (!secondary_map().defined[second]) return std::nullopt;
  if (operand_override && !rex_w && second >= 0x80 && second <= 0x8f) return std::nullopt;
  if (secondary_map().modrm[second]) read_modrm(cursor, layout);
  return finish(cursor, layout, immediate_bytes(secondary_map().immediate[second], operand_override, rex_w, false));
}

FormKey form_key(std::span<const std::uint8_t> bytes, const Layout& layout) {
  FormKey key;
  std::size_t n = 0;
  for (std::size_t i = 0; i < layout.length; ++i) {
    const bool in_displacement = layout.displacement_bytes != 0 && i >= layout.displacement_offset &&
                                 i < std::size_t{layout.displacement_offset} + layout.displacement_bytes;
    const bool in_immediate = layout.immediate_bytes != 0 && i >= layout.immediate_offset;
    if (!in_displacement && !in_immediate) key.bytes[n++] = bytes[i];
  }
  key.bytes[15] = layout.length;
  return key;
}

}  // namespace penumbra::rewrite
