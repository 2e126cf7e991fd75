#include "runtime/base/text_buffer.h"

namespace penumbra {

TextBuffer& TextBuffer::put(char c) {
  if (size_ < capacity_) {
    storage_[size_++] = c;
    if (c == '\n') line_start_ = size_;
  } else {
    ++lost_;
  }
  return *this;
}

TextBuffer& TextBuffer::append(const char* text, std::size_t length) {
  for (std::size_t i = 0; i < length; ++i) put(text[i]);
  return *this;
}

TextBuffer& TextBuffer::append(const char* text) {
  while (*text != '\0') put(*text++);
  return *this;
}

TextBuffer& TextBuffer::dec(std::uint64_t value) {
  char digits[20];
  unsigned n = 0;
  do {
    digits[n++] = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  while (n > 0) put(digits[--n]);
  return *this;
}

TextBuffer& TextBuffer::dec_signed(std::int64_t value) {
  if (value < 0) {
    put('-');
    return dec(-static_cast<std::uint64_t>(value));
  }
  return dec(static_cast<std::uint64_t>(value));
}

TextBuffer& TextBuffer::hex_padded(std::uint64_t value, unsigned digits) {
  for (unsigned i = digits; i > 0; --i) put("0123456789abcdef"[(value >> (4 * (i - 1))) & 15]);
  return *this;
}

TextBuffer& TextBuffer::hex(std::uint64_t value) {
  unsigned digits = 1;
  while (digits < 16 && (value >> (4 * digits)) != 0) ++digits;
  return append("0x").hex_padded(value, digits);
}

TextBuffer& TextBuffer::pad_to(std::size_t column) {
  while (size_ - line_start_ < column && size_ < capacity_) put(' ');
  return *this;
}

const char* TextBuffer::c_str() {
  if (size_ == capacity_) {
    --size_;
    ++lost_;
  }
  storage_[size_] = '\0';
  return storage_;
}

}  // namespace penumbra
