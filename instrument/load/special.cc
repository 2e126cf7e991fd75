#include "instrument/load/special.h"

#include "instrument/load/exact.h"
#include "instrument/load/saved_state.h"
#include "instrument/load/slots.h"

namespace penumbra::load {
namespace {

// rewrite::AccessShape, as the module file carries it.
enum class Shape : std::uint8_t { kPlain, kString, kMasked, kGathered, kBitString, kTable, kState };

constexpr unsigned kRax = 0;
constexpr unsigned kRcx = 1;
constexpr unsigned kRdx = 2;
constexpr unsigned kRbx = 3;
constexpr std::uint64_t kDirectionFlag = 0x400;

std::uintptr_t effective_address(const ModuleCheck& check, const ModuleAccess& access, const OriginalState& state) {
  std::uintptr_t address = static_cast<std::uintptr_t>(std::int64_t{access.displacement});
  if (check.base >= 0) address += state.value[check.base];
  if (check.index >= 0) address += state.value[check.index] * check.scale;
  return address;
}

struct Prefixes {
  const std::uint8_t* opcode = nullptr;
  std::uint8_t rex = 0;
  bool operand_size = false;
  bool repne = false;
};

Prefixes read_prefixes(const std::uint8_t* code) {
  Prefixes p;
  p.opcode = code;
  for (;; ++p.opcode) {
    const std::uint8_t byte = *p.opcode;
    if (byte == 0x66) {
      p.operand_size = true;
    } else if (byte == 0xf2) {
      p.repne = true;
    } else if (byte != 0xf3 && byte != 0xf0 && byte != 0x2e && byte != 0x3e && byte != 0x26 && byte != 0x36 &&
               byte != 0x64 && byte != 0x65 && byte != 0x67) {
      break;
    }
  }
  if ((*p.opcode & 0xf0) == 0x40) p.rex = *p.opcode++;
  return p;
}

// False where the element is not there: the instruction will fault on it by itself.
bool load_element(std::uintptr_t at, std::size_t size, std::uint64_t& value) {
  value = 0;
  for (std::size_t n = 0; n < size; ++n) {
    const int byte = penumbra_try_load(at + n);
    if (byte < 0) return false;
    value |= std::uint64_t(byte) << (8 * n);
  }
  return true;
}

// Elements that repe/repne cmps or scas consumes, by doing what it will do; stops at the first inaccessible one.
std::uint64_t elements_consumed(const OriginalState& state, std::size_t size, bool is_compare, bool repne,
                                bool backwards) {
  const std::uint64_t mask = size == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * size)) - 1;
  const std::uintptr_t step = backwards ? -static_cast<std::uintptr_t>(size) : size;
  std::uintptr_t left = state.value[6];
  std::uintptr_t right = state.value[7];
  std::uint64_t n = 0;
  while (n < state.value[kRcx]) {
    ++n;
    if (first_bad_exactly(right, size) != kAllFine || (is_compare && first_bad_exactly(left, size) != kAllFine))
      break;
    std::uint64_t a = state.value[kRax] & mask;
    std::uint64_t b = 0;
    if ((is_compare && !load_element(left, size, a)) || !load_element(right, size, b)) break;
    if ((a == b) == repne) break;
    left += step;
    right += step;
  }
  return n;
}

void string_range(const ModuleAccess& access, const OriginalState& state, const std::uint8_t* code,
                  std::uintptr_t& begin, std::size_t& bytes) {
  const Prefixes prefixes = read_prefixes(code);
  const std::uint8_t opcode = *prefixes.opcode;
  const bool backwards = (state.flags & kDirectionFlag) != 0;
  std::uint64_t count = state.value[kRcx];
  const bool is_compare = opcode == 0xa6 || opcode == 0xa7;
  const bool is_scan = opcode == 0xae || opcode == 0xaf;
  if (is_compare || is_scan) count = elements_consumed(state, access.size, is_compare, prefixes.repne, backwards);
  bytes = count * access.size;
  if (backwards && count != 0) begin -= (count - 1) * access.size;
}

void bit_range(const ModuleAccess& access, const OriginalState& state, const std::uint8_t* code,
               std::uintptr_t& begin, std::size_t& bytes) {
  const Prefixes prefixes = read_prefixes(code);
  const std::uint8_t modrm = prefixes.opcode[2];  // behind 0f and the opcode
  const unsigned r = ((modrm >> 3) & 7u) | ((prefixes.rex & 4u) << 1);
  std::int64_t bit = static_cast<std::int64_t>(state.value[r]);
  if (access.size == 4) bit = static_cast<std::int32_t>(bit);
  if (access.size == 2) bit = static_cast<std::int16_t>(bit);
  begin += static_cast<std::uintptr_t>(bit >> 3);
  bytes = 1;
}

// A restore reads the header to know the rest; where that is bad already, it is all there is to report.
std::size_t state_bytes(const OriginalState& state, const std::uint8_t* code, std::uintptr_t begin) {
  if (first_bad_exactly(begin, kStateHeaderEnd) != kAllFine) return kStateHeaderEnd;
  const std::uint64_t wanted = (state.value[kRdx] << 32) | (state.value[kRax] & 0xffffffff);
  StateHeader header;
  if (!load_element(begin + 512, 8, header.present) || !load_element(begin + 520, 8, header.format))
    return kStateHeaderEnd;
  return saved_state_bytes(read_prefixes(code).opcode + 1, wanted, header);
}

}  // namespace

bool find_bad_special(const ModuleCheck& check, const ModuleAccess& access, const OriginalState& state,
                      const std::uint8_t* code, BadRange& range) {
  const std::uintptr_t address = effective_address(check, access, state);
  const Shape shape = static_cast<Shape>(access.shape);
  std::uintptr_t begin = address;
  std::size_t bytes = access.size;
  switch (shape) {
    case Shape::kPlain: break;
    case Shape::kString: string_range(access, state, code, begin, bytes); break;
    case Shape::kBitString: bit_range(access, state, code, begin, bytes); break;
    case Shape::kTable:
      begin = state.value[kRbx] + (state.value[kRax] & 0xff);
      bytes = 1;
      break;
    case Shape::kState: bytes = state_bytes(state, code, begin); break;
    case Shape::kMasked:
    case Shape::kGathered:
      return find_bad_element(ElementChoice::unpack(static_cast<std::uint32_t>(check.low)), address, bytes,
                              check.scale, shape == Shape::kGathered, code, range);
  }
  if (bytes == 0) return false;
  range = {begin, bytes, first_bad_exactly(begin, bytes)};
  return range.bad != kAllFine;
}

}  // namespace penumbra::load
