#include "instrument/load/elements.h"

#include "instrument/load/exact.h"

// One entry of 16 bytes a register: each stores its register to the address it is given (slots_x86_64.S).
extern "C" {
extern const char penumbra_store_zmm[];
extern const char penumbra_store_ymm[];
extern const char penumbra_store_xmm[];
extern const char penumbra_store_mm[];
extern const char penumbra_store_mask[];
}

namespace penumbra::load {
namespace {

constexpr std::size_t kStoreEntryBytes = 16;
constexpr std::size_t kVectorRegisterBytes = 64;
constexpr std::uint8_t kEvex = 0x62;
constexpr std::uint8_t kVex3 = 0xc4;
constexpr std::uint8_t kVex2 = 0xc5;

struct Vector {
  std::uint8_t bytes[kVectorRegisterBytes];
};

void store(const char* entries, unsigned number, void* to) {
  reinterpret_cast<void (*)(void*)>(reinterpret_cast<std::uintptr_t>(entries) + number * kStoreEntryBytes)(to);
}

// The registers of an instruction are as wide as its encoding can name; the processor has what it is about to execute.
const char* vector_entries(const std::uint8_t* code) {
  // Segment overrides and the address-size prefix may stand before a VEX or EVEX prefix.
  while (*code == 0x26 || *code == 0x2e || *code == 0x36 || *code == 0x3e || *code == 0x67) ++code;
  if (*code == kEvex) return penumbra_store_zmm;
  return *code == kVex3 || *code == kVex2 ? penumbra_store_ymm : penumbra_store_xmm;
}

// Bit i: element i is chosen.
std::uint64_t chosen(const ElementChoice& choice, const std::uint8_t* code) {
  const std::uint64_t all = choice.count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << choice.count) - 1;
  std::uint64_t bits = all;
  Vector signs;
  switch (choice.decider) {
    case ElementChoice::kEverything: return all;
    case ElementChoice::kMaskRegister: store(penumbra_store_mask, choice.decider_register, &bits); return bits & all;
    case ElementChoice::kVectorSigns: store(vector_entries(code), choice.decider_register, &signs); break;
    case ElementChoice::kMmxSigns: store(penumbra_store_mm, choice.decider_register, &signs); break;
  }
  bits = 0;
  for (unsigned n = 0; n < choice.count; ++n) {
    const std::uint8_t top = signs.bytes[(n + 1u) * choice.element_bytes - 1];
    bits |= static_cast<std::uint64_t>(top >> 7) << n;
  }
  return bits;
}

std::int64_t index_at(const Vector& indices, unsigned n, bool wide) {
  const std::uint8_t* at = indices.bytes + n * (wide ? 8u : 4u);
  std::uint64_t value = 0;
  for (unsigned b = 0; b < (wide ? 8u : 4u); ++b) value |= std::uint64_t{at[b]} << (8 * b);
  return wide ? static_cast<std::int64_t>(value) : static_cast<std::int32_t>(value);
}

}  // namespace

bool find_bad_element(const ElementChoice& choice, std::uintptr_t address, std::size_t bytes, unsigned scale,
                      bool gathers, const std::uint8_t* code, BadRange& range) {
  // Most masked accesses lie in accessible memory as a whole.
  if (!gathers && first_bad_exactly(address, bytes) == kAllFine) return false;
  const std::uint64_t bits = chosen(choice, code);
  if (bits == 0) return false;
  if (!gathers && choice.place != ElementChoice::kOwn) {
    std::size_t size = bytes;
    if (choice.place == ElementChoice::kPacked) {
      size = 0;
      for (std::uint64_t rest = bits; rest != 0; rest &= rest - 1) size += choice.element_bytes;
    }
    range = {address, size, first_bad_exactly(address, size)};
    return range.bad != kAllFine;
  }
  Vector indices;
  if (gathers) store(vector_entries(code), choice.index_register, &indices);
  for (unsigned n = 0; n < choice.count; ++n) {
    if ((bits >> n & 1) == 0) continue;
    std::uintptr_t element = address + std::uintptr_t{n} * choice.element_bytes;
    if (gathers) {
      element = address + static_cast<std::uintptr_t>(index_at(indices, n, choice.has_wide_index) * scale);
    }
    const std::uintptr_t bad = first_bad_exactly(element, choice.element_bytes);
    if (bad == kAllFine) continue;
    range = {element, choice.element_bytes, bad};
    // The chosen elements beside it are part of the same run of bytes.
    for (unsigned m = n; !gathers && m-- > 0 && (bits >> m & 1) != 0;) {
      range.address -= choice.element_bytes;
      range.size += choice.element_bytes;
    }
    for (unsigned m = n + 1; !gathers && m < choice.count && (bits >> m & 1) != 0; ++m)
      range.size += choice.element_bytes;
    return true;
  }
  return false;
}

}  // namespace penumbra::load
