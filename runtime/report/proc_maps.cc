#include "runtime/report/proc_maps.h"

#include <algorithm>

#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"
#include "runtime/base/scratch_pool.h"

namespace penumbra::report {
namespace {

constinit ScratchPool g_buffers(kPageSize);
constinit bool g_has_buffers = false;  // reserved at start and never given back
// Longest line that is understood without a page: addresses, and a path of some 900 bytes.
constexpr std::size_t kSmallBuffer = 1024;

struct Cursor {
  const char* at;
  const char* end;

  bool take(char c) {
    if (at == end || *at != c) return false;
    ++at;
    return true;
  }

  bool take_hex(std::uint64_t& value) {
    value = 0;
    const char* const start = at;
    for (; at < end; ++at) {
      const char c = *at;
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<unsigned>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        value = value * 16 + static_cast<unsigned>(c - 'a' + 10);
      } else {
        break;
      }
    }
    return at > start;
  }

  void skip_word() {
    while (at < end && *at != ' ') ++at;
    while (at < end && *at == ' ') ++at;
  }
};

}  // namespace

bool parse_mapping(const char* line, std::size_t length, Mapping& mapping) {
  Cursor cursor{line, line + length};
  std::uint64_t begin;
  std::uint64_t end;
  if (!cursor.take_hex(begin) || !cursor.take('-') || !cursor.take_hex(end) || !cursor.take(' ')) return false;
  if (cursor.end - cursor.at < 5) return false;
  mapping.begin = begin;
  mapping.end = end;
  mapping.readable = cursor.at[0] == 'r';
  mapping.writable = cursor.at[1] == 'w';
  mapping.executable = cursor.at[2] == 'x';
  cursor.skip_word();
  if (!cursor.take_hex(mapping.offset)) return false;
  cursor.skip_word();  // what is left of the offset: only the blank
  cursor.skip_word();  // device
  cursor.skip_word();  // inode
  const std::size_t path =
      std::min<std::size_t>(static_cast<std::size_t>(cursor.end - cursor.at), sizeof mapping.path - 1);
  raw_copy(mapping.path, cursor.at, path);
  mapping.path[path] = '\0';
  return true;
}

void reserve_mapping_buffers() {
  g_has_buffers = g_buffers.reserve();
}

bool for_each_mapping(bool (*visit)(const Mapping& mapping, void* cookie), void* cookie) {
  const os::Result opened = os::open_read("/proc/self/maps");
  if (!opened.ok()) return false;
  const int fd = static_cast<int>(opened.value());
  // A handler may run on a small stack: its page is not to spare.
  char small[kSmallBuffer];
  void* const page = g_has_buffers ? g_buffers.acquire() : nullptr;
  char* const buffer = page != nullptr ? static_cast<char*>(page) : small;
  const std::size_t capacity = page != nullptr ? g_buffers.buffer_bytes() : sizeof small;
  std::size_t filled = 0;
  bool go_on = true;
  bool overlong = false;  // the line did not fit: what comes of it is skipped up to its newline
  while (go_on) {
    const os::Result got = os::read(fd, buffer + filled, capacity - filled);
    if (!got.ok() || got.value() == 0) break;
    filled += static_cast<std::size_t>(got.value());
    std::size_t start = 0;
    for (std::size_t i = 0; i < filled && go_on; ++i) {
      if (buffer[i] != '\n') continue;
      Mapping mapping;
      if (!overlong && parse_mapping(buffer + start, i - start, mapping)) go_on = visit(mapping, cookie);
      overlong = false;
      start = i + 1;
    }
    filled -= start;
    raw_move(buffer, buffer + start, filled);
    if (filled == capacity) {
      overlong = true;
      filled = 0;
    }
  }
  os::close(fd).ignore();
  if (page != nullptr) g_buffers.release(page);
  return true;
}

}  // namespace penumbra::report
