#include "runtime/base/check.h"

#include "runtime/base/os_linux.h"
#include "runtime/base/text_buffer.h"

namespace penumbra {
namespace {

[[noreturn]] void say_and_trap(TextBuffer& text) {
  text.append("\n");
  os::write_all(2, text.data(), text.size());
  __builtin_trap();
}

}  // namespace

void check_failed(const char* file, int line, const char* expression) {
  FixedTextBuffer<512> text;
  text.append("penumbra: internal check failed at ")
      .append(file)
      .append(":")
      .dec(line)
      .append(": ")
      .append(expression);
  say_and_trap(text);
}

void check_op_failed(const char* file, int line, const char* expression, std::uint64_t left, std::uint64_t right) {
  FixedTextBuffer<512> text;
  text.append("penumbra: internal check failed at ")
      .append(file)
      .append(":")
      .dec(line)
      .append(": ")
      .append(expression);
  text.append(" (").hex(left).append(" against ").hex(right).append(")");
  say_and_trap(text);
}

void die_errno(const char* what, std::uintptr_t address, std::uintptr_t bytes, int error) {
  FixedTextBuffer<512> text;
  text.append("penumbra: cannot ")
      .append(what)
      .append(" at ")
      .hex(address)
      .append(", ")
      .dec(bytes)
      .append(" bytes: errno ")
      .dec(error);
  say_and_trap(text);
}

}  // namespace penumbra
