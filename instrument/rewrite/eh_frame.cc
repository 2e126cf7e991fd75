#include "instrument/rewrite/eh_frame.h"

#include <dwarf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>

namespace penumbra::rewrite {
namespace {

// Reads encoded values from the image; a value past the end is a damaged file.
class Reader {
 public:
  Reader(const ElfImage& image, std::uint64_t address)
      : image_(&image), address_(address), bytes_(image.at(address)) {}

  std::uint64_t address() const { return address_; }

  std::uint64_t fixed(unsigned count) {
    need(count);
    std::uint64_t value = 0;
    std::memcpy(&value, bytes_.data(), count);
    advance(count);
    return value;
  }

  std::uint8_t byte() { return static_cast<std::uint8_t>(fixed(1)); }

  std::uint64_t uleb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      const std::uint8_t b = byte();
      if (shift < 64) value |= std::uint64_t{b & 0x7fu} << shift;
      if ((b & 0x80) == 0) return value;
    }
    damaged();
  }

  std::int64_t sleb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 70;) {
      const std::uint8_t b = byte();
      if (shift < 64) value |= std::uint64_t{b & 0x7fu} << shift;
      shift += 7;
      if ((b & 0x80) != 0) continue;
      if (shift < 64 && (b & 0x40) != 0) value |= ~std::uint64_t{0} << shift;
      return static_cast<std::int64_t>(value);
    }
    damaged();
  }

  // A DW_EH_PE value. Indirect ones name a word in memory that the loader fills; the address of that word is returned.
  std::uint64_t encoded(std::uint8_t encoding) {
    const std::uint64_t here = address_;
    std::uint64_t value = 0;
    switch (encoding & 0x0f) {
      case DW_EH_PE_absptr:
      case DW_EH_PE_udata8:
      case DW_EH_PE_sdata8: value = fixed(8); break;
      case DW_EH_PE_uleb128: value = uleb(); break;
      case DW_EH_PE_sleb128: value = static_cast<std::uint64_t>(sleb()); break;
      case DW_EH_PE_udata2: value = fixed(2); break;
      case DW_EH_PE_udata4: value = fixed(4); break;
      case DW_EH_PE_sdata2:
        value = static_cast<std::uint64_t>(std::int64_t{static_cast<std::int16_t>(fixed(2))});
        break;
      case DW_EH_PE_sdata4:
        value = static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(fixed(4))});
        break;
      default: damaged();
    }
    return value != 0 && (encoding & 0x70) == DW_EH_PE_pcrel ? value + here : value;
  }

  void advance(std::size_t count) {
    need(count);
    bytes_ = bytes_.subspan(count);
    address_ += count;
  }

 private:
  void need(std::size_t count) const {
    if (bytes_.size() < count) damaged();
  }

  [[noreturn]] void damaged() const {
    throw ImageError(fmt::format("{}: damaged exception tables (at address {:#x})", image_->path(), address_));
  }

  const ElfImage* image_;
  std::uint64_t address_;
  std::span<const std::uint8_t> bytes_;
};

struct Cie {
  std::uint8_t pointer_encoding = DW_EH_PE_absptr;
  std::uint8_t lsda_encoding = DW_EH_PE_omit;
  bool has_augmentation_size = false;
  bool is_signal_frame = false;
};

// The CIE at `address`, or nothing for an augmentation that nobody emits any more.
std::optional<Cie> read_cie(const ElfImage& image, std::uint64_t address) {
  Reader reader(image, address);
  if (reader.fixed(4) == 0xffffffff) return std::nullopt;  // 64-bit DWARF: not in .eh_frame of x86-64
  if (reader.fixed(4) != 0) return std::nullopt;
  const std::uint8_t version = reader.byte();
  std::string augmentation;
  while (const std::uint8_t c = reader.byte()) augmentation += static_cast<char>(c);
  reader.uleb();
  reader.sleb();
  if (version == 1) {
    reader.byte();
  } else {
    reader.uleb();
  }
  Cie cie;
  if (augmentation.empty()) return cie;
  if (augmentation[0] != 'z') return std::nullopt;
  cie.has_augmentation_size = true;
  reader.uleb();
  for (const char c : std::string_view(augmentation).substr(1)) {
    switch (c) {
      case 'R': cie.pointer_encoding = reader.byte(); break;
      case 'L': cie.lsda_encoding = reader.byte(); break;
      case 'P': reader.encoded(reader.byte() & 0x0f); break;
      case 'S': cie.is_signal_frame = true; break;
      case 'B': break;
      default: return std::nullopt;
    }
  }
  return cie;
}

}  // namespace

std::vector<FrameRange> read_frame_ranges(const ElfImage& image) {
  std::vector<FrameRange> ranges;
  const std::uint64_t header = image.eh_frame_header();
  if (header == 0) return ranges;
  Reader reader(image, header);
  reader.byte();  // version
  const std::uint8_t frame_encoding = reader.byte();
  const std::uint8_t count_encoding = reader.byte();
  const std::uint8_t table_encoding = reader.byte();
  // The search table is what unwinders go by; without one, or in a form no linker writes, nothing is known.
  if (table_encoding != (DW_EH_PE_datarel | DW_EH_PE_sdata4)) return ranges;
  reader.encoded(frame_encoding);
  const std::uint64_t count = reader.encoded(count_encoding);
  std::map<std::uint64_t, std::optional<Cie>> cies;
  for (std::uint64_t n = 0; n < count; ++n) {
    reader.fixed(4);  // where the function begins; the FDE says it too
    const std::uint64_t fde_address = header + reader.encoded(DW_EH_PE_sdata4);
    Reader fde(image, fde_address);
    const std::uint64_t length = fde.fixed(4);
    const std::uint64_t id_address = fde.address();
    const std::uint64_t cie_distance = fde.fixed(4);
    if (length == 0 || length == 0xffffffff || cie_distance == 0) continue;
    const std::uint64_t cie_address = id_address - cie_distance;
    auto known = cies.find(cie_address);
    if (known == cies.end()) known = cies.emplace(cie_address, read_cie(image, cie_address)).first;
    const std::optional<Cie>& cie = known->second;
    if (!cie) continue;
    FrameRange range;
    range.begin = fde.encoded(cie->pointer_encoding);
    range.end = range.begin + fde.encoded(cie->pointer_encoding & 0x0f);
    range.is_signal_frame = cie->is_signal_frame;
    if (cie->has_augmentation_size && fde.uleb() != 0 && cie->lsda_encoding != DW_EH_PE_omit) {
      range.lsda = fde.encoded(cie->lsda_encoding);
    }
    if (range.begin < range.end && image.is_code(range.begin) && image.is_code(range.end - 1))
      ranges.push_back(range);
  }
  std::ranges::stable_sort(ranges, {}, &FrameRange::begin);
  std::vector<FrameRange> disjoint;
  for (const FrameRange& range : ranges) {
    if (!disjoint.empty() && range.begin < disjoint.back().end) {
      if (range.begin == disjoint.back().begin) continue;
      disjoint.back().end = range.begin;
    }
    disjoint.push_back(range);
  }
  return disjoint;
}

std::vector<std::uint64_t> landing_pads(const ElfImage& image, const FrameRange& range) {
  std::vector<std::uint64_t> pads;
  if (range.lsda == 0) return pads;
  Reader reader(image, range.lsda);
  std::uint64_t base = range.begin;
  if (const std::uint8_t encoding = reader.byte(); encoding != DW_EH_PE_omit) base = reader.encoded(encoding);
  if (const std::uint8_t encoding = reader.byte(); encoding != DW_EH_PE_omit) reader.uleb();
  const std::uint8_t encoding = reader.byte() & 0x0f;
  const std::uint64_t bytes = reader.uleb();
  const std::uint64_t end = reader.address() + bytes;
  while (reader.address() < end) {
    reader.encoded(encoding);
    reader.encoded(encoding);
    const std::uint64_t pad = reader.encoded(encoding);
    reader.uleb();
    if (pad != 0) pads.push_back(base + pad);
  }
  std::ranges::sort(pads);
  pads.erase(std::unique(pads.begin(), pads.end()), pads.end());
  return pads;
}

}  // namespace penumbra::rewrite
