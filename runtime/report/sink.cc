#include "runtime/report/sink.h"

#include <errno.h>
#include <signal.h>

#include "runtime/base/config.h"
#include "runtime/base/os_process.h"
#include "runtime/report/task.h"

namespace penumbra::report {
namespace {

constexpr int kStderr = 2;
// Above what programs and their select() calls use.
constexpr int kLowestOwnDescriptor = 900;
// A terminal or pipe that takes nothing for this long gets the rest no more.
constexpr int kPatienceMs = 2000;

constinit const char* g_log_path = "";
constinit bool g_has_stderr = true;

bool write_patiently(int fd, const char* text, std::size_t length) {
  constexpr os::SignalSet kWriteSignals = os::signal_bit(SIGPIPE) | os::signal_bit(SIGXFSZ);
  const os::SignalSet before = os::is_sealed() ? kWriteSignals : os::pending_signals() & kWriteSignals;
  while (length > 0) {
    const os::Result written = os::write_some(fd, text, length);
    if (written.error() == EINTR) continue;
    if (written.error() == EAGAIN && os::wait_writable(fd, kPatienceMs)) continue;
    if (!written.ok() || written.value() == 0) break;
    text += written.value();
    length -= static_cast<std::size_t>(written.value());
  }
  if (length > 0 && before != kWriteSignals) os::discard_pending(kWriteSignals & ~before);
  return length == 0;
}

int open_log() {
  if (g_log_path[0] == '\0') return -1;
  FixedTextBuffer<kMaxPath> path;
  append_log_path(path, g_log_path, current_task().pid);
  const os::Result opened = os::open_append(path.c_str());
  if (opened.ok()) return os::move_high(static_cast<int>(opened.value()), kLowestOwnDescriptor);
  if (g_has_stderr) {
    FixedTextBuffer<kMaxPath + 128> line;
    line.append("penumbra: cannot open log_path '")
        .append(path.c_str())
        .append("' (errno ")
        .dec(static_cast<std::uint64_t>(opened.error()))
        .append("): the report goes to stderr\n");
    write_patiently(kStderr, line.data(), line.size());
  }
  return -1;
}

}  // namespace

void append_log_path(TextBuffer& out, const char* pattern, int pid) {
  for (const char* p = pattern; *p != '\0'; ++p) {
    if (p[0] == '%' && p[1] == 'p') {
      out.dec(static_cast<std::uint64_t>(pid));
      ++p;
    } else if (p[0] == '%' && p[1] == '%') {
      out.put('%');
      ++p;
    } else {
      out.put(*p);
    }
  }
}

void open_sink(const char* log_path) {
  g_log_path = log_path;
  g_has_stderr = os::is_open(kStderr);
}

bool write_out(const char* text, std::size_t length) {
  const int log = open_log();
  if (log < 0) return g_has_stderr && write_patiently(kStderr, text, length);
  const bool written = write_patiently(log, text, length);
  os::close(log).ignore();
  return written;
}

}  // namespace penumbra::report
