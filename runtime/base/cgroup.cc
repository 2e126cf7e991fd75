#include "runtime/base/cgroup.h"

#include <algorithm>

#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"
#include "runtime/base/text_buffer.h"

namespace penumbra::os {
namespace {

// The number that a file begins with; "max" and what cannot be read are no limit.
std::uint64_t number_in(const char* path) {
  const Result fd = open_read(path);
  if (!fd.ok()) return kNoMemoryLimit;
  char text[32];
  const Result got = read(static_cast<int>(fd.value()), text, sizeof text);
  close(static_cast<int>(fd.value())).ignore();
  if (!got.ok() || got.value() == 0 || text[0] < '0' || text[0] > '9') return kNoMemoryLimit;
  std::uint64_t value = 0;
  for (long i = 0; i < got.value() && text[i] >= '0' && text[i] <= '9'; ++i) {
    value = value * 10 + static_cast<std::uint64_t>(text[i] - '0');
  }
  return value;
}

// Of the line "N:NAME:PATH" of /proc/self/cgroup (cgroups(7)) the PATH, without a slash at its end; empty where no
// line has that NAME.
void own_group(const char* self_cgroup, const char* name, char (&group)[kMaxPath]) {
  group[0] = '\0';
  const Result fd = open_read(self_cgroup);
  if (!fd.ok()) return;
  char text[kMaxPath];
  const Result got = read(static_cast<int>(fd.value()), text, sizeof text);
  close(static_cast<int>(fd.value())).ignore();
  const std::size_t end = got.ok() ? static_cast<std::size_t>(got.value()) : 0;
  const std::size_t name_length = raw_length(name);
  for (std::size_t line = 0; line < end;) {
    std::size_t stop = line;
    while (stop < end && text[stop] != '\n') ++stop;
    std::size_t at = line;
    while (at < stop && text[at] != ':') ++at;
    ++at;
    if (at + name_length < stop && raw_compare(text + at, name, name_length) == 0 && text[at + name_length] == ':') {
      at += name_length + 1;
      if (stop > at && text[stop - 1] == '/') --stop;
      raw_copy(group, text + at, stop - at);
      group[stop - at] = '\0';
      return;
    }
    line = stop + 1;
  }
}

// The least that `file` says in a group and in all above it, up to the hierarchy's root.
std::uint64_t least_limit(const char* root, char (&group)[kMaxPath], const char* file) {
  std::uint64_t limit = kNoMemoryLimit;
  for (;;) {
    FixedTextBuffer<kMaxPath> path;
    path.append(root).append(group).append(file);
    if (path.lost() == 0) limit = std::min(limit, number_in(path.c_str()));
    if (group[0] == '\0') return limit;
    std::size_t slash = raw_length(group) - 1;
    while (slash != 0 && group[slash] != '/') --slash;
    group[slash] = '\0';
  }
}

}  // namespace

std::uint64_t cgroup_memory_limit(const char* self_cgroup, const char* root) {
  char group[kMaxPath];
  own_group(self_cgroup, "", group);
  const std::uint64_t unified = least_limit(root, group, "/memory.max");
  own_group(self_cgroup, "memory", group);
  FixedTextBuffer<kMaxPath> controller;
  controller.append(root).append("/memory");
  return std::min(unified, least_limit(controller.c_str(), group, "/memory.limit_in_bytes"));
}

std::uint64_t cgroup_memory_limit() {
  return cgroup_memory_limit("/proc/self/cgroup", "/sys/fs/cgroup");
}

}  // namespace penumbra::os
