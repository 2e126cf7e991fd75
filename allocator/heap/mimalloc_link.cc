#include "allocator/heap/mimalloc_link.h"

#include "runtime/base/config.h"
#include "runtime/base/file_name.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"

#include <elf.h>
#include <link.h>
#include <mimalloc.h>
#include <sys/mman.h>

#include <cstdint>

namespace penumbra::heap {
namespace {

bool same(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

// What the dynamic section of a loaded library says, as pointers.
struct Library {
  std::uintptr_t base = 0;
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const std::uint32_t* gnu_hash = nullptr;
  const ElfW(Rela) * jump_slots = nullptr;
  std::size_t jump_slot_bytes = 0;
  std::uintptr_t relro_begin = 0;  // pages that the loader made read-only after relocating
  std::uintptr_t relro_end = 0;

  bool is_complete() const { return symbols != nullptr && strings != nullptr && gnu_hash != nullptr; }

  // The chains of .gnu.hash cover every defined symbol (System V ABI, GNU extension).
  void* find(const char* name) const {
    const std::uint32_t buckets = gnu_hash[0];
    const std::uint32_t first = gnu_hash[1];
    const std::uint32_t* const bucket = gnu_hash + 4 + gnu_hash[2] * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
    const std::uint32_t* const chain = bucket + buckets;
    std::uint32_t hash = 5381;
    for (const char* c = name; *c != '\0'; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
    std::uint32_t i = bucket[hash % buckets];
    if (i < first) return nullptr;
    for (;; ++i) {
      const std::uint32_t link = chain[i - first];
      if ((link | 1) == (hash | 1) && same(strings + symbols[i].st_name, name)) {
        return reinterpret_cast<void*>(base + symbols[i].st_value);
      }
      if ((link & 1) != 0) return nullptr;
    }
  }
};

int find_library(dl_phdr_info* info, std::size_t, void* out) {
  if (!starts_with(base_name(info->dlpi_name), "libmimalloc.so")) return 0;
  Library& library = *static_cast<Library*>(out);
  library = Library();
  library.base = info->dlpi_addr;
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type == PT_GNU_RELRO) {
      library.relro_begin = round_down(library.base + segment.p_vaddr, kPageSize);
      library.relro_end = round_down(library.base + segment.p_vaddr + segment.p_memsz, kPageSize);
    }
    if (segment.p_type != PT_DYNAMIC) continue;
    // glibc has relocated these pointers.
    for (auto* d = reinterpret_cast<const ElfW(Dyn)*>(library.base + segment.p_vaddr); d->d_tag != DT_NULL; ++d) {
      switch (d->d_tag) {
        case DT_SYMTAB: library.symbols = reinterpret_cast<const ElfW(Sym)*>(d->d_un.d_ptr); break;
        case DT_STRTAB: library.strings = reinterpret_cast<const char*>(d->d_un.d_ptr); break;
        case DT_GNU_HASH: library.gnu_hash = reinterpret_cast<const std::uint32_t*>(d->d_un.d_ptr); break;
        case DT_JMPREL: library.jump_slots = reinterpret_cast<const ElfW(Rela)*>(d->d_un.d_ptr); break;
        case DT_PLTRELSZ: library.jump_slot_bytes = d->d_un.d_val; break;
        default: break;
      }
    }
  }
  return library.is_complete() ? 1 : 0;
}

void* inner_target(const Library& library, const char* name) {
  if (starts_with(name, "mi_")) return library.find(name);
  if (same(name, "memset")) return reinterpret_cast<void*>(&raw_set);
  if (same(name, "memcpy")) return reinterpret_cast<void*>(&raw_copy);
  if (same(name, "strlen")) return reinterpret_cast<void*>(&raw_length);
  return nullptr;
}

void bind_inner_calls(const Library& library) {
  const bool is_protected = library.relro_begin < library.relro_end;
  const AppAddr relro(library.relro_begin);
  if (is_protected) os::protect(relro, library.relro_end - library.relro_begin, PROT_READ | PROT_WRITE).ignore();
  for (std::size_t i = 0; i < library.jump_slot_bytes / sizeof(ElfW(Rela)); ++i) {
    const ElfW(Rela)& slot = library.jump_slots[i];
    if (ELF64_R_TYPE(slot.r_info) != R_X86_64_JUMP_SLOT) continue;
    void* const target = inner_target(library, library.strings + library.symbols[ELF64_R_SYM(slot.r_info)].st_name);
    if (target != nullptr) *reinterpret_cast<void**>(library.base + slot.r_offset) = target;
  }
  if (is_protected) os::protect(relro, library.relro_end - library.relro_begin, PROT_READ).ignore();
}

template <class Function>
bool look_up(const Library& library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(library.find(name));
  return function != nullptr;
}

}  // namespace

bool bind_mimalloc(Mimalloc& functions) {
  Library library;
  if (dl_iterate_phdr(find_library, &library) == 0) return false;
  if (!look_up(library, "mi_malloc", functions.malloc) || !look_up(library, "mi_free", functions.free) ||
      !look_up(library, "mi_usable_size", functions.usable_size) ||
      !look_up(library, "mi_collect", functions.collect) ||
      !look_up(library, "mi_option_set", functions.option_set) ||
      !look_up(library, "mi_manage_os_memory", functions.manage_os_memory)) {
    return false;
  }
  bind_inner_calls(library);
  functions.option_set(mi_option_limit_os_alloc, 1);
  // The environment (MIMALLOC_RESERVE_...) could set these for the program's own use; memory from there is
  // not ours.
  functions.option_set(mi_option_reserve_os_memory, 0);
  functions.option_set(mi_option_reserve_huge_os_pages, 0);
  // Else it counts the nodes below /sys at its first need, which a seccomp filter may kill it for.
  functions.option_set(mi_option_use_numa_nodes, 1);
  return true;
}

}  // namespace penumbra::heap
