#include "runtime/report/modules.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <atomic>

#include "runtime/base/address.h"
#include "runtime/base/locks.h"
#include "runtime/base/os_process.h"
#include "runtime/base/raw_memory.h"
#include "runtime/report/proc_maps.h"

namespace penumbra::report {
namespace {

// Closed modules that a process can have named later. Programs with hundreds of plugins exist; thousands of
// different ones closed do not.
constexpr std::size_t kMaxRemembered = 512;

constinit Module g_remembered[kMaxRemembered];
constinit std::atomic<std::size_t> g_remembered_count{0};
constinit Mutex g_remember_lock;
constinit char g_executable[512] = {};

void copy_path(char (&into)[512], const char* from) {
  const std::size_t length = std::min(raw_length(from), sizeof into - 1);
  raw_copy(into, from, length);
  into[length] = '\0';
}

// After sealing there is no call that probes memory; what the loader calls mapped is believed then.
bool read_mapped(std::uintptr_t from, void* into, std::size_t bytes) {
  if (os::try_read_memory(AppAddr(from), into, bytes)) return true;
  if (!os::is_sealed()) return false;
  raw_copy(into, reinterpret_cast<const void*>(from), bytes);
  return true;
}

void read_build_id_note(Module& module, std::uintptr_t note, std::size_t bytes) {
  std::uintptr_t at = note;
  while (at + sizeof(Elf64_Nhdr) <= note + bytes) {
    Elf64_Nhdr header;
    if (!read_mapped(at, &header, sizeof header)) return;
    const std::uintptr_t description = at + sizeof header + round_up(header.n_namesz, 4);
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && header.n_descsz <= module.build_id.size()) {
      if (read_mapped(description, module.build_id.data(), header.n_descsz)) {
        module.build_id_bytes = static_cast<std::uint8_t>(header.n_descsz);
      }
      return;
    }
    at = description + round_up(header.n_descsz, 4);
  }
}

// The program headers stand behind the file header in the first mapping of nearly every file that linkers write.
void read_build_id(Module& module) {
  Elf64_Ehdr header;
  if (!read_mapped(module.begin, &header, sizeof header)) return;
  if (raw_compare(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(Elf64_Phdr)) return;
  for (unsigned i = 0; i < header.e_phnum && module.build_id_bytes == 0; ++i) {
    Elf64_Phdr segment;
    if (!read_mapped(module.begin + header.e_phoff + i * sizeof segment, &segment, sizeof segment)) return;
    if (segment.p_type == PT_NOTE) read_build_id_note(module, module.bias + segment.p_vaddr, segment.p_filesz);
  }
}

bool find_loaded(std::uintptr_t pc, Module& module) {
  dl_find_object found;
  if (_dl_find_object(reinterpret_cast<void*>(pc), &found) != 0 || found.dlfo_link_map == nullptr) return false;
  module = Module{};
  module.begin = reinterpret_cast<std::uintptr_t>(found.dlfo_map_start);
  module.end = reinterpret_cast<std::uintptr_t>(found.dlfo_map_end);
  module.bias = found.dlfo_link_map->l_addr;
  module.dynamic = reinterpret_cast<std::uintptr_t>(found.dlfo_link_map->l_ld);
  module.eh_frame_header = reinterpret_cast<std::uintptr_t>(found.dlfo_eh_frame);
  module.is_loaded = true;
  const char* name = found.dlfo_link_map->l_name;
  copy_path(module.path, name != nullptr && name[0] != '\0' ? name : g_executable);
  read_build_id(module);
  return true;
}

bool find_remembered(std::uintptr_t pc, Module& module) {
  for (std::size_t i = g_remembered_count.load(std::memory_order_acquire); i > 0; --i) {
    const Module& known = g_remembered[i - 1];
    if (pc < known.begin || pc >= known.end) continue;
    module = known;
    module.dynamic = module.eh_frame_header = 0;
    module.is_loaded = false;
    return true;
  }
  return false;
}

struct MapsSearch {
  std::uintptr_t pc;
  Module* module;
  bool found = false;
};

// Mappings come in ascending order, a file's first one before its code.
bool visit_mapping(const Mapping& mapping, void* cookie) {
  auto& search = *static_cast<MapsSearch*>(cookie);
  Module& module = *search.module;
  if (mapping.path[0] != '/') return mapping.begin <= search.pc;
  if (mapping.offset == 0 || raw_compare(module.path, mapping.path, raw_length(mapping.path) + 1) != 0) {
    copy_path(module.path, mapping.path);
    module.begin = mapping.begin;
    module.bias = mapping.begin - mapping.offset;
  }
  module.end = mapping.end;
  if (search.pc >= mapping.begin && search.pc < mapping.end) {
    search.found = true;
    return false;
  }
  return mapping.begin <= search.pc;
}

bool find_mapped_file(std::uintptr_t pc, Module& module) {
  module = Module{};
  MapsSearch search{pc, &module};
  for_each_mapping(visit_mapping, &search);
  if (!search.found) return false;
  read_build_id(module);
  return true;
}

int remember_one(dl_phdr_info* info, std::size_t, void*) {
  std::uintptr_t code = 0;
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const Elf64_Phdr& segment = info->dlpi_phdr[i];
    if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0) code = info->dlpi_addr + segment.p_vaddr;
  }
  Module module;
  if (code == 0 || !find_loaded(code, module)) return 0;
  const std::size_t count = g_remembered_count.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) {
    const Module& known = g_remembered[i];
    if (known.begin == module.begin && known.end == module.end &&
        raw_compare(known.path, module.path, raw_length(module.path) + 1) == 0) {
      return 0;
    }
  }
  if (count == kMaxRemembered) return 1;
  g_remembered[count] = module;
  g_remembered_count.store(count + 1, std::memory_order_release);
  return 0;
}

}  // namespace

const char* Module::base_name() const {
  const char* name = path;
  for (const char* p = path; *p != '\0'; ++p) {
    if (*p == '/' && p[1] != '\0') name = p + 1;
  }
  return name;
}

bool find_module(std::uintptr_t pc, Module& module) {
  return find_loaded(pc, module) || find_remembered(pc, module) || find_mapped_file(pc, module);
}

void remember_all() {
  LockGuard guard(g_remember_lock);
  dl_iterate_phdr(remember_one, nullptr);
}

void remember_executable() {
  os::executable_path(g_executable, sizeof g_executable);
}

}  // namespace penumbra::report
