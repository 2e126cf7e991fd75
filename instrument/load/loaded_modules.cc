#include "instrument/load/loaded_modules.h"

#include <elf.h>
#include <sys/auxv.h>

#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"

namespace penumbra::load {
namespace {

ProgramHeaders main_headers() {
  return {reinterpret_cast<const ElfW(Phdr)*>(getauxval(AT_PHDR)), getauxval(AT_PHNUM)};
}

const r_debug* find_debug() {
  const ProgramHeaders headers = main_headers();
  if (headers.first == nullptr) return nullptr;
  std::uintptr_t base = 0;
  const ElfW(Dyn)* dynamic = nullptr;
  for (const ElfW(Phdr) & header : headers) {
    if (header.p_type == PT_PHDR) base = reinterpret_cast<std::uintptr_t>(headers.first) - header.p_vaddr;
    if (header.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(base + header.p_vaddr);
  }
  if (dynamic == nullptr) return nullptr;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == DT_DEBUG) return reinterpret_cast<const r_debug*>(dynamic->d_un.d_ptr);
  }
  return nullptr;
}

// A program without DT_DEBUG still has the loader's own variable.
const r_debug* first_debug() {
  const r_debug* const found = find_debug();
  return found != nullptr ? found : &_r_debug;
}

}  // namespace

void for_each_loaded_module(ModuleVisitor visit, void* cookie) {
  bool is_first = true;
  for (const r_debug* debug = first_debug(); debug != nullptr;) {
    for (const link_map* map = debug->r_map; map != nullptr; map = map->l_next) {
      visit({map, map->l_addr, map->l_name, is_first}, cookie);
      is_first = false;
    }
    // The version says whether there is a link: 2 as soon as a second namespace exists.
    if (debug->r_version < 2) return;
    debug = reinterpret_cast<const r_debug*>(reinterpret_cast<const r_debug_extended*>(debug)->r_next);
  }
}

ProgramHeaders headers_of(const LoadedModule& module) {
  if (module.is_main) return main_headers();
  ElfW(Ehdr) header;
  if (!os::try_read_memory(AppAddr(module.base), &header, sizeof header) ||
      raw_compare(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(ElfW(Phdr)) ||
      header.e_phoff + std::size_t{header.e_phnum} * sizeof(ElfW(Phdr)) > kPageSize) {
    return {};
  }
  return {reinterpret_cast<const ElfW(Phdr)*>(module.base + header.e_phoff), header.e_phnum};
}

std::uintptr_t loader_event_function() {
  return first_debug()->r_brk;
}

}  // namespace penumbra::load
