#include "instrument/abi/compiled.h"

#include <elf.h>
#include <link.h>

#include <cstdint>

#include "instrument/abi/entry_macros_x86_64.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"
#include "runtime/base/text_buffer.h"
#include "shadow/address_map.h"

extern "C" {

// 0: no compiled code, 1: yes, 2: ask. The interposers' assembly tests for 0.
__attribute__((visibility("hidden"))) constinit std::uint8_t penumbra_abi_compiled = 2;

}  // extern "C"

namespace penumbra::abi {
namespace {

constexpr std::uint8_t kNo = 0;
constexpr std::uint8_t kYes = 1;
constexpr std::uint8_t kAsk = 2;

constexpr char kPrefix[] = "__asan_";

// Where a module's own symbol references are: its relocations, and the tables that they index.
struct Imports {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const ElfW(Rela) * data = nullptr;
  std::size_t data_bytes = 0;
  std::size_t data_relative = 0;  // leading entries without a symbol
  const ElfW(Rela) * calls = nullptr;
  std::size_t call_bytes = 0;
};

Imports imports_of(const dl_phdr_info& module) {
  Imports found;
  for (int i = 0; i < module.dlpi_phnum; ++i) {
    if (module.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(module.dlpi_addr + module.dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      const std::size_t value = entry->d_un.d_val;
      // ld.so has relocated the addresses in place, except in the vDSO, whose values are below its base.
      const std::uintptr_t at = value < module.dlpi_addr ? value + module.dlpi_addr : value;
      switch (entry->d_tag) {
        case DT_SYMTAB: found.symbols = reinterpret_cast<const ElfW(Sym)*>(at); break;
        case DT_STRTAB: found.names = reinterpret_cast<const char*>(at); break;
        case DT_RELA: found.data = reinterpret_cast<const ElfW(Rela)*>(at); break;
        case DT_RELASZ: found.data_bytes = value; break;
        case DT_RELACOUNT: found.data_relative = value; break;
        case DT_JMPREL: found.calls = reinterpret_cast<const ElfW(Rela)*>(at); break;
        case DT_PLTRELSZ: found.call_bytes = value; break;
        default: break;
      }
    }
  }
  return found;
}

bool has_prefix(const char* name) {
  for (const char* p = kPrefix; *p != 0; ++p, ++name) {
    if (*name != *p) return false;
  }
  return true;
}

bool any_names_a_check(const Imports& imports, const ElfW(Rela) * relocations, std::size_t first, std::size_t bytes) {
  if (relocations == nullptr) return false;
  for (std::size_t i = first; i < bytes / sizeof *relocations; ++i) {
    const ElfW(Sym)& symbol = imports.symbols[ELF64_R_SYM(relocations[i].r_info)];
    if (symbol.st_shndx == SHN_UNDEF && has_prefix(imports.names + symbol.st_name)) return true;
  }
  return false;
}

// This library refers to one such name itself (the program's __asan_on_error), and its code names the offset.
bool is_ourselves(const dl_phdr_info& module) {
  const auto here = reinterpret_cast<std::uintptr_t>(&penumbra_abi_compiled);
  for (int i = 0; i < module.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = module.dlpi_phdr[i];
    const std::uintptr_t begin = module.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && here >= begin && here - begin < segment.p_memsz) return true;
  }
  return false;
}

bool imports_checks(const dl_phdr_info& module) {
  if (is_ourselves(module)) return false;
  const Imports imports = imports_of(module);
  if (imports.symbols == nullptr || imports.names == nullptr) return false;
  return any_names_a_check(imports, imports.calls, 0, imports.call_bytes) ||
         any_names_a_check(imports, imports.data, imports.data_relative, imports.data_bytes);
}

// Does executable code contain the shadow's offset as a displacement? Inline checks and stack poisoning do, with every
// compiler; other code has no use for that number.
bool contains_shadow_offset(const dl_phdr_info& module) {
  const std::uint32_t wanted = PENUMBRA_ABI_SHADOW_OFFSET;
  for (int i = 0; i < module.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = module.dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    const auto* code = reinterpret_cast<const std::uint8_t*>(module.dlpi_addr + segment.p_vaddr);
    for (std::size_t at = 0; at + sizeof wanted <= segment.p_filesz; ++at) {
      if (raw_compare(code + at, &wanted, sizeof wanted) == 0) return true;
    }
  }
  return false;
}

int stop_at_compiled(dl_phdr_info* module, std::size_t, void*) {
  return imports_checks(*module) ? 1 : 0;
}

int stop_at_inline(dl_phdr_info* module, std::size_t, void* path) {
  if (!imports_checks(*module) || !contains_shadow_offset(*module)) return 0;
  *static_cast<const char**>(path) = module->dlpi_name;
  return 1;
}

}  // namespace

void note_compiled_code() {
  if (__atomic_load_n(&penumbra_abi_compiled, __ATOMIC_RELAXED) != kYes) {
    __atomic_store_n(&penumbra_abi_compiled, kYes, __ATOMIC_RELAXED);
  }
}

void expect_new_module() {
  std::uint8_t no = kNo;
  __atomic_compare_exchange_n(&penumbra_abi_compiled, &no, kAsk, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

bool has_compiled_code() {
  std::uint8_t known = __atomic_load_n(&penumbra_abi_compiled, __ATOMIC_RELAXED);
  if (known == kAsk) {
    // "No" first: a dlopen that comes in between sets "ask" again, and nothing is lost.
    __atomic_store_n(&penumbra_abi_compiled, kNo, __ATOMIC_SEQ_CST);
    known = ::dl_iterate_phdr(stop_at_compiled, nullptr) != 0 ? kYes : kNo;
    if (known == kYes) note_compiled_code();
  }
  return known == kYes;
}

bool find_inline_checks(const char** path) {
  return ::dl_iterate_phdr(stop_at_inline, path) != 0;
}

void require_shadow_for_compiled_code() {
  const char* path = nullptr;
  if (shadow::is_direct() || !find_inline_checks(&path)) return;
  FixedTextBuffer<1024> line;
  line.append("penumbra: ")
      .append(*path != 0 ? path : "the program")
      .append(" has inline checks, which need the shadow at ")
      .hex(shadow::kShadowOffset)
      .append(
          "; raise the limit on address space (ulimit -v unlimited), or compile with outline checks and without "
          "stack checks: pkg-config --variable=outline_cflags penumbra\n");
  os::write_all(2, line.data(), line.size());
  os::exit_process(1);
}

}  // namespace penumbra::abi
