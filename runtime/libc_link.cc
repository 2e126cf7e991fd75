#include "runtime/libc_link.h"

#include <elf.h>
#include <link.h>

#include "instrument/libc/rewritten.h"
#include "instrument/load/areas.h"
#include "instrument/load/redirect.h"
#include "runtime/base/export.h"
#include "runtime/base/os_process.h"
#include "runtime/base/raw_memory.h"
#include "runtime/preload/heap_entries.h"
#include "runtime/process/elf_names.h"

namespace penumbra::runtime {
namespace {

// Of libc's text, while entries are redirected.
constinit load::EntryWriter* g_writer = nullptr;

// The first libc does; from then on others are to.
constinit bool g_leads_to_heap = false;

std::uintptr_t some_address_in_libc() {
  return reinterpret_cast<std::uintptr_t>(PENUMBRA_NEXT("__libc_start_main"));
}

// A file that checks at all checks the kinds that check= names, as the entry points do.
bool checks(const load::Area& area) {
  const std::uint64_t options = area.file.header->options;
  return (options & (kModuleChecksReads | kModuleChecksWrites)) != 0 && (options & kModuleChecksSystemCalls) != 0;
}

bool is_checked(std::uintptr_t function) {
  const load::Area* const area = load::area_of_text(function);
  return area != nullptr && checks(*area) && !load::is_listed(*area, function);
}

std::uintptr_t copy_of(std::uintptr_t function) {
  const load::Area* const area = load::area_of_text(function);
  return area == nullptr ? 0 : load::redirectable(*area, function);
}

bool redirect(std::uintptr_t function, std::uintptr_t to) {
  const load::Area* const area = load::area_of_text(function);
  return area != nullptr && g_writer->redirect(*area, function, to);
}

// What is needed of a module to look up its names and to write its entries.
struct Module {
  std::uintptr_t base = 0;
  AppRange text;
  std::uintptr_t dynamic = 0;
  std::size_t dynamic_bytes = 0;

  explicit Module(const load::LoadedModule& loaded) : base(loaded.base) {
    for (const ElfW(Phdr) & header : load::headers_of(loaded)) {
      const AppAddr begin(base + header.p_vaddr);
      if (header.p_type == PT_LOAD && (header.p_flags & PF_X) != 0) text = {begin, begin + header.p_memsz};
      if (header.p_type != PT_DYNAMIC) continue;
      dynamic = header.p_vaddr;
      dynamic_bytes = header.p_memsz;
    }
  }
};

bool read_module(const void* cookie, std::uint64_t address, void* into, std::size_t bytes) {
  const auto& module = *static_cast<const Module*>(cookie);
  raw_copy(into, reinterpret_cast<const void*>(module.base + address), bytes);
  return true;
}

void lead_to_heap(const Module& libc) {
  const process::ElfNames names(read_module, &libc, libc.dynamic, libc.dynamic_bytes, libc.base);
  load::EntryWriter writer(libc.text);
  for (const preload::HeapEntry& entry : preload::kHeapEntries) {
    const std::uint64_t value = names.value_of(entry.name);
    if (value == 0) continue;
    const std::uintptr_t function = libc.base + value;
    const auto own = reinterpret_cast<std::uintptr_t>(entry.own);
    if (const load::Area* const area = load::area_of_text(function)) {
      writer.redirect(*area, function, own);
    } else {
      writer.replace(function, own);
    }
  }
}

}  // namespace

void lead_libc_to_entry_points() {
  const load::Area* const libc = load::area_of_text(some_address_in_libc());
  if (libc == nullptr) return;
  load::EntryWriter writer(libc->text);
  if (!writer.ok()) return;
  g_writer = &writer;
  libc::use_rewritten({.is_checked = is_checked, .copy_of = copy_of, .redirect = redirect});
  g_writer = nullptr;
}

void lead_libc_to_heap() {
  const std::uintptr_t inside = some_address_in_libc();
  // Process ruling 19: a debugger that takes a breakpoint away again would tear our jump.
  if (inside == 0 || (load::area_of_text(inside) == nullptr && os::tracer_pid() != 0)) return;
  load::for_each_loaded_module(
      [](const load::LoadedModule& loaded, void*) {
        const Module module(loaded);
        if (module.text.contains(AppAddr(some_address_in_libc()))) lead_to_heap(module);
      },
      nullptr);
  g_leads_to_heap = true;
}

void lead_another_libc_to_heap(const load::LoadedModule& loaded) {
  if (!g_leads_to_heap) return;
  const Module module(loaded);
  const process::ElfNames names(read_module, &module, module.dynamic, module.dynamic_bytes, module.base);
  if (module.text.bytes() != 0 && names.defines("__libc_start_main")) lead_to_heap(module);
}

}  // namespace penumbra::runtime
