#include "instrument/load/load.h"

#include <elf.h>
#include <link.h>

#include "instrument/load/areas.h"
#include "instrument/load/patch.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"
#include "runtime/base/text_buffer.h"

namespace penumbra::load {
namespace {

// File names, without their folder, of what is never rewritten. libc is a matter of its own: its vector string functions
// read past the end on purpose.
constexpr const char* kNeverRewritten[] = {"ld-linux", "linux-vdso", "libpenumbra", "libmimalloc", "libc.so",
                                           "libasan",  "libtsan",    "libubsan",    "liblsan"};

bool starts_with(const char* text, const char* prefix) {
  for (; *prefix != '\0'; ++prefix, ++text) {
    if (*text != *prefix) return false;
  }
  return true;
}

const char* base_name(const char* path) {
  const char* name = path;
  for (; *path != '\0'; ++path) {
    if (*path == '/') name = path + 1;
  }
  return name;
}

bool is_left_alone(const char* path) {
  for (const char* name : kNeverRewritten) {
    if (starts_with(base_name(path), name)) return true;
  }
  return false;
}

// The build-id in hexadecimal from the module's notes in memory; false without one.
bool find_identity(const dl_phdr_info& info, TextBuffer& identity) {
  for (unsigned n = 0; n < info.dlpi_phnum; ++n) {
    const ElfW(Phdr)& header = info.dlpi_phdr[n];
    if (header.p_type != PT_NOTE) continue;
    const std::uintptr_t begin = info.dlpi_addr + header.p_vaddr;
    for (std::uintptr_t at = begin; at + sizeof(ElfW(Nhdr)) <= begin + header.p_memsz;) {
      const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
      const std::uintptr_t name = at + sizeof *note;
      const std::uintptr_t description = name + round_up(note->n_namesz, 4);
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
          raw_compare(reinterpret_cast<const void*>(name), "GNU", 4) == 0) {
        for (unsigned b = 0; b < note->n_descsz; ++b) {
          identity.hex_padded(*reinterpret_cast<const std::uint8_t*>(description + b), 2);
        }
        return true;
      }
      at = description + round_up(note->n_descsz, 4);
    }
  }
  return false;
}

struct Search {
  const char* cache;
  LoadCounts counts;
};

bool rewrite(const dl_phdr_info& info, const char* cache, LoadCounts& counts) {
  FixedTextBuffer<80> identity;
  if (!find_identity(info, identity)) {
    ++counts.missing;
    return false;
  }
  FixedTextBuffer<kMaxPath> path;
  path.append(cache).append("/").append(identity.c_str()).append(".module");
  if (path.lost() != 0) return false;
  Area area;
  switch (map_module(path.c_str(), identity.c_str(), area.file)) {
    case MapVerdict::kMapped: break;
    case MapVerdict::kAbsent: ++counts.missing; return false;
    default: ++counts.refused; return false;
  }
  const ModuleMap file = area.file;
  const bool ready = make_area(file, info.dlpi_addr, area);
  close_file(area.file);
  if (!ready || !publish(area) || !patch_module(area)) {
    ++counts.refused;
    return false;
  }
  return true;
}

int visit(dl_phdr_info* info, std::size_t, void* cookie) {
  auto& search = *static_cast<Search*>(cookie);
  if (is_left_alone(info->dlpi_name)) return 0;
  ++search.counts.modules;
  if (rewrite(*info, search.cache, search.counts)) ++search.counts.rewritten;
  return 0;
}

}  // namespace

LoadCounts rewrite_loaded_modules(const char* cache) {
  release_room();
  Search search{cache, {}};
  const os::Result folder = os::open_read(cache);
  if (!folder.ok()) return search.counts;
  const bool trusted = os::is_ours_alone(static_cast<int>(folder.value()));
  os::close(static_cast<int>(folder.value())).ignore();
  if (!trusted) return search.counts;
  dl_iterate_phdr(visit, &search);
  return search.counts;
}

}  // namespace penumbra::load
