// Text built without malloc or stdio: a fixed buffer that truncates, and one write at the end.
//
// I1  size() <= capacity, and what did not fit is counted in lost(), never written past the end.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

namespace penumbra {

class TextBuffer {
 public:
  constexpr TextBuffer(char* storage, std::size_t capacity) : storage_(storage), capacity_(capacity) {}
  TextBuffer(const TextBuffer&) = delete;
  TextBuffer& operator=(const TextBuffer&) = delete;

  TextBuffer& append(const char* text);
  TextBuffer& append(const char* text, std::size_t length);
  TextBuffer& put(char c);
  TextBuffer& dec(std::uint64_t value);
  TextBuffer& dec_signed(std::int64_t value);
  TextBuffer& hex(std::uint64_t value);                          // 0x1f
  TextBuffer& hex_padded(std::uint64_t value, unsigned digits);  // 001f, no prefix
  TextBuffer& pad_to(std::size_t column);                        // spaces up to this column of the current line

  const char* data() const { return storage_; }
  std::size_t size() const { return size_; }
  std::size_t lost() const { return lost_; }
  void clear() { size_ = lost_ = line_start_ = 0; }
  // Zero-terminated; the last byte of a full buffer gives way to the terminator.
  const char* c_str();

 private:
  char* storage_;
  std::size_t capacity_;
  std::size_t size_ = 0;
  std::size_t lost_ = 0;
  std::size_t line_start_ = 0;
};

template <std::size_t N>
class FixedTextBuffer : public TextBuffer {
 public:
  constexpr FixedTextBuffer() : TextBuffer(bytes_, N) {}

 private:
  char bytes_[N];
};

}  // namespace penumbra
