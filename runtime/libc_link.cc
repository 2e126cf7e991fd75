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

constexpr std::uint64_t kChecksAll = kModuleChecksReads | kModuleChecksWrites | kModuleChecksSystemCalls;

// Of libc's text, while entries are redirected.
constinit load::EntryWriter* g_writer = nullptr;

std::uintptr_t some_address_in_libc() {
  return reinterpret_cast<std::uintptr_t>(PENUMBRA_NEXT("__libc_start_main"));
}

bool is_checked(std::uintptr_t function) {
  const load::Area* const area = load::area_of_text(function);
  return area != nullptr && (area->file.header->options & kChecksAll) == kChecksAll;
}

std::uintptr_t copy_of(std::uintptr_t function) {
  const load::Area* const area = load::area_of_text(function);
  return area == nullptr ? 0 : load::redirectable(*area, function);
}

bool redirect(std::uintptr_t function, std::uintptr_t to) {
  const load::Area* const area = load::area_of_text(function);
  return area != nullptr && g_writer->redirect(*area, function, to);
}

// The module that `address` lies in.
struct Module {
  std::uintptr_t address = 0;
  std::uintptr_t base = 0;
  AppRange text;
  std::uintptr_t dynamic = 0;
  std::size_t dynamic_bytes = 0;

  bool find() { return dl_iterate_phdr(look, this) != 0; }

 private:
  static int look(dl_phdr_info* info, std::size_t, void* self) {
    auto& module = *static_cast<Module*>(self);
    module.text = {};
    for (unsigned n = 0; n < info->dlpi_phnum; ++n) {
      const ElfW(Phdr)& header = info->dlpi_phdr[n];
      const AppAddr begin(info->dlpi_addr + header.p_vaddr);
      const AppRange range{begin, begin + header.p_memsz};
      if (header.p_type == PT_LOAD && (header.p_flags & PF_X) != 0 && range.contains(AppAddr(module.address))) {
        module.text = range;
      }
      if (header.p_type == PT_DYNAMIC) {
        module.dynamic = header.p_vaddr;
        module.dynamic_bytes = header.p_memsz;
      }
    }
    module.base = info->dlpi_addr;
    return module.text.bytes() != 0 ? 1 : 0;
  }
};

bool read_module(const void* cookie, std::uint64_t address, void* into, std::size_t bytes) {
  const auto& module = *static_cast<const Module*>(cookie);
  raw_copy(into, reinterpret_cast<const void*>(module.base + address), bytes);
  return true;
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
  Module libc;
  libc.address = some_address_in_libc();
  if (libc.address == 0 || !libc.find()) return;
  // Process ruling 19: a debugger that takes a breakpoint away again would tear our jump.
  if (load::area_of_text(libc.address) == nullptr && os::tracer_pid() != 0) return;
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

}  // namespace penumbra::runtime
