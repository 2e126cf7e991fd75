#include "runtime/report/symbolizer.h"

#include <errno.h>
#include <signal.h>

#include "runtime/base/os_process.h"
#include "runtime/base/raw_memory.h"
#include "runtime/base/symbolize_protocol.h"
#include "runtime/report/helper_process.h"

namespace penumbra::report {
namespace {

constexpr std::size_t kFields = 6;
enum Field : std::size_t { kMangled, kDemangled, kSymbolOffset, kSymbolSize, kFile, kLine };

struct Slice {
  const char* text = nullptr;
  std::size_t length = 0;
};

// An answer while it comes in; the longest one that the protocol allows, several times over.
constinit char g_answer[4 * kSymbolizeLineBytes] = {};

bool split(Slice line, Slice (&fields)[kFields]) {
  std::size_t field = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= line.length; ++i) {
    if (i < line.length && line.text[i] != '\t') continue;
    if (field == kFields) return false;
    fields[field++] = {line.text + begin, i - begin};
    begin = i + 1;
  }
  return field == kFields;
}

std::uint64_t number(Slice digits, unsigned base) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < digits.length; ++i) {
    const char c = digits.text[i];
    value = value * base + static_cast<unsigned>(c >= 'a' ? c - 'a' + 10 : c - '0');
  }
  return value;
}

// Symbols carry their version behind an @ in static tables.
Slice without_version(Slice name) {
  std::size_t length = 0;
  while (length < name.length && name.text[length] != '@') ++length;
  return {name.text, length};
}

const char* keep(NameTable& names, Slice text) {
  return text.length == 0 ? nullptr : names.keep(text.text, text.length);
}

class Deadline {
 public:
  explicit Deadline(int milliseconds) : end_(os::monotonic_ns() + std::uint64_t(milliseconds) * 1'000'000) {}

  int left_ms() const {
    const std::uint64_t now = os::monotonic_ns();
    return now >= end_ ? 0 : static_cast<int>((end_ - now + 999'999) / 1'000'000);
  }

 private:
  std::uint64_t end_;
};

// Reads up to the empty line that ends an answer. Requests and answers take turns, so nothing else can come in.
// Answers the number of bytes before that line, or -1.
long read_answer(int fd, const Deadline& deadline) {
  std::size_t filled = 0;
  while (filled < sizeof g_answer) {
    if (!os::wait_readable(fd, deadline.left_ms())) return -1;
    const os::Result got = os::read(fd, g_answer + filled, sizeof g_answer - filled);
    if (got.error() == EINTR) continue;
    if (!got.ok() || got.value() == 0) return -1;
    filled += static_cast<std::size_t>(got.value());
    if (filled == 1 && g_answer[0] == '\n') return 0;
    if (filled >= 2 && g_answer[filled - 1] == '\n' && g_answer[filled - 2] == '\n') {
      return static_cast<long>(filled - 1);
    }
  }
  return -1;
}

}  // namespace

bool append_request(TextBuffer& out, const CodeName& name) {
  if (name.module_path == nullptr || name.module_path[0] != '/') return false;
  for (const char* p = name.module_path; *p != '\0'; ++p) {
    if (*p == '\n') return false;
  }
  const std::uintptr_t at = name.module_offset - (name.is_return_address ? 1 : 0);
  unsigned digits = 1;
  while (digits < 16 && (at >> (4 * digits)) != 0) ++digits;
  out.append(name.module_path).put('\t').append(name.build_id != nullptr ? name.build_id : "").put('\t');
  out.hex_padded(at, digits).put('\n');
  return true;
}

void take_answer(NameTable& names, CodeName& name, const char* text, std::size_t length) {
  std::size_t begin = 0;
  name.source_count = 0;
  for (std::size_t i = 0; i < length; ++i) {
    if (text[i] != '\n') continue;
    const Slice line{text + begin, i - begin};
    begin = i + 1;
    Slice fields[kFields];
    if (!split(line, fields)) continue;
    // A chain that is too long loses its middle: the last frame is the function itself.
    if (name.source_count == kMaxSourceFrames) --name.source_count;
    SourceFrame& frame = name.source[name.source_count++];
    const Slice mangled = without_version(fields[kMangled]);
    frame.function = keep(names, fields[kDemangled].length != 0 ? fields[kDemangled] : mangled);
    frame.file = keep(names, fields[kFile]);
    frame.line = static_cast<std::uint32_t>(number(fields[kLine], 10));
    const std::uint64_t bytes = number(fields[kSymbolSize], 16);
    if (mangled.length == 0 || bytes == 0) continue;
    const char* const symbol = names.keep(mangled.text, mangled.length);
    if (symbol == nullptr || !is_plain_symbol(symbol)) continue;
    name.function = symbol;
    name.offset = number(fields[kSymbolOffset], 16) + (name.is_return_address ? 1 : 0);
    name.bytes = bytes;
  }
}

void symbolize(NameTable& names) {
  Helper helper;
  const char* const arguments[] = {kSymbolizeCommand, nullptr};
  if (!start_helper(helper, arguments)) return;
  const bool had_sigpipe = (os::pending_signals() & os::signal_bit(SIGPIPE)) != 0;
  const Deadline deadline(kSymbolizeMs);
  bool on_time = true;
  for (std::size_t i = 0; i < names.count() && on_time; ++i) {
    FixedTextBuffer<1024> request;
    if (!append_request(request, names[i]) || request.lost() != 0) continue;
    const os::Result sent = os::write_some(helper.to, request.data(), request.size());
    const long length = sent.ok() ? read_answer(helper.from, deadline) : -1;
    on_time = length >= 0;
    if (on_time) take_answer(names, names[i], g_answer, static_cast<std::size_t>(length));
  }
  stop_helper(helper, !on_time);
  if (!had_sigpipe) os::discard_pending(os::signal_bit(SIGPIPE));
}

}  // namespace penumbra::report
