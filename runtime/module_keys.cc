#include "runtime/module_keys.h"

#include "runtime/base/config.h"
#include "runtime/base/module_key.h"
#include "runtime/base/os_linux.h"

namespace penumbra::runtime {
namespace {

constinit OptOutList g_list;

bool map_list(const char* path) {
  const os::Result opened = os::open_read(path);
  if (!opened.ok()) return false;
  const int fd = static_cast<int>(opened.value());
  const os::Result bytes = os::file_bytes(fd);
  bool is_read = bytes.ok();
  if (bytes.ok() && bytes.value() != 0) {
    const os::Result mapped = os::map_file_read_only(round_up(bytes.value(), kPageSize), fd);
    is_read = mapped.ok();
    if (is_read) {
      g_list.begin = mapped.address().ptr<const char>();
      g_list.end = g_list.begin + bytes.value();
    }
  }
  os::close(fd).ignore();
  return is_read;
}

}  // namespace

void read_optout_list(const Options& options) {
  if (options.optout[0] == '\0' || map_list(options.optout)) return;
  FixedTextBuffer<kOptionTextBytes + 80> line;
  line.append("penumbra: optout=").append(options.optout).append(" cannot be read: nothing is left out\n");
  os::write_all(2, line.data(), line.size());
}

void append_key(TextBuffer& out, const char* path) {
  append_module_key(out, process_options(), g_list, path);
}

}  // namespace penumbra::runtime
