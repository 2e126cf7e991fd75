// A bounded reader of DWARF's byte stream: numbers, LEB128, encoded pointers.
//
// I1  never reads outside [begin, end) given at the start; the first read that would leave it makes ok() false, and
//     from then on every read gives 0 and moves nothing, so loops over a cursor end by testing ok() or at_end().
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

namespace penumbra::stacks {

// Pointer encodings of .eh_frame (LSB Core, "DWARF Exception Header Encoding").
inline constexpr std::uint8_t kPeOmit = 0xff;
inline constexpr std::uint8_t kPeIndirect = 0x80;
inline constexpr std::uint8_t kPeApplication = 0x70;
inline constexpr std::uint8_t kPePcRelative = 0x10;
inline constexpr std::uint8_t kPeDataRelative = 0x30;
inline constexpr std::uint8_t kPeFunctionRelative = 0x40;
inline constexpr std::uint8_t kPeAligned = 0x50;
inline constexpr std::uint8_t kPeFormat = 0x0f;
inline constexpr std::uint8_t kPeSdata4 = 0x0b;

class ByteCursor {
 public:
  ByteCursor(const std::uint8_t* begin, const std::uint8_t* end) : at_(begin), end_(end), ok_(begin <= end) {}

  bool ok() const { return ok_; }
  bool at_end() const { return !ok_ || at_ >= end_; }
  const std::uint8_t* at() const { return at_; }
  const std::uint8_t* end() const { return end_; }

  template <class T>
  T fixed() {
    if (!ok_ || static_cast<std::size_t>(end_ - at_) < sizeof(T)) {
      ok_ = false;
      return T{};
    }
    T value;
    __builtin_memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::uint8_t u8() { return fixed<std::uint8_t>(); }

  std::uint64_t uleb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const std::uint8_t byte = u8();
      if (shift < 64) value |= std::uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) return ok_ ? value : 0;
    }
  }

  std::int64_t sleb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const std::uint8_t byte = u8();
      if (shift < 64) value |= std::uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) {
        if (!ok_) return 0;
        if (shift + 7 < 64 && (byte & 0x40) != 0) value |= ~std::uint64_t{0} << (shift + 7);
        return static_cast<std::int64_t>(value);
      }
    }
  }

  void skip(std::uint64_t bytes) {
    if (!ok_ || bytes > static_cast<std::uint64_t>(end_ - at_)) {
      ok_ = false;
    } else {
      at_ += bytes;
    }
  }

  // Moves past a zero-terminated string and returns it, null when it has no end.
  const char* text() {
    const auto* start = reinterpret_cast<const char*>(at_);
    while (u8() != 0) {
    }
    return ok_ ? start : nullptr;
  }

  // An encoded pointer; 0 is 0 whatever it is relative to. An indirect one gives the address of the slot: nothing
  // that an unwinder of ours follows is indirect. Text-relative pointers do not occur on x86-64 and are refused.
  std::uintptr_t pointer(std::uint8_t encoding, std::uintptr_t data_base, std::uintptr_t function_base = 0) {
    if (encoding == kPeOmit) return 0;
    if ((encoding & ~kPeIndirect) == kPeAligned) {
      const auto misaligned = reinterpret_cast<std::uintptr_t>(at_) & 7;
      if (misaligned != 0) skip(8 - misaligned);
      return fixed<std::uint64_t>();
    }
    std::uintptr_t base = 0;
    switch (encoding & kPeApplication) {
      case 0: break;
      case kPePcRelative: base = reinterpret_cast<std::uintptr_t>(at_); break;
      case kPeDataRelative: base = data_base; break;
      case kPeFunctionRelative: base = function_base; break;
      default: ok_ = false; return 0;
    }
    const std::uint64_t raw = plain(encoding & kPeFormat);
    return raw == 0 || !ok_ ? 0 : base + raw;
  }

  // A number in one of the pointer formats, sign-extended where the format is signed.
  std::uint64_t plain(std::uint8_t format) {
    switch (format & kPeFormat) {
      case 0x00:
      case 0x04:
      case 0x0c: return fixed<std::uint64_t>();
      case 0x01: return uleb();
      case 0x02: return fixed<std::uint16_t>();
      case 0x03: return fixed<std::uint32_t>();
      case 0x09: return static_cast<std::uint64_t>(sleb());
      case 0x0a: return static_cast<std::uint64_t>(std::int64_t{fixed<std::int16_t>()});
      case kPeSdata4: return static_cast<std::uint64_t>(std::int64_t{fixed<std::int32_t>()});
      default: ok_ = false; return 0;
    }
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
  bool ok_;
};

}  // namespace penumbra::stacks
