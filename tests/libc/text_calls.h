// Every mem*, str*, wcs*, wmem* entry point and fortified form, as a call that touches exactly so many bytes.
//
// A TextCall makes its function read or write exactly [p, p + count * char_bytes): no byte less, none more. Whatever
// else the call touches lies in buffers that are accessible. So with a block of that size nothing may be reported,
// and with a block that is one character shorter exactly one fault must be, at the block's end.
//
// zone: hosted
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace penumbra::libc::testing {

struct TextCall {
  const char* function;
  bool is_write;
  std::size_t char_bytes;
  // A bad first byte is met by a read, whatever follows: strcat looks for the end of what it appends to.
  bool reads_first() const { return !is_write || std::string_view(function).find("cat") != std::string_view::npos; }
  void (*call)(char* p, std::size_t count);  // count >= 1
};

std::span<const TextCall> text_calls();

}  // namespace penumbra::libc::testing
