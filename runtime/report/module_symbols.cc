// Dynamic symbols and function bounds of a loaded module, read where the loader mapped them.
//
// zone: signal-safe
#include <elf.h>
#include <link.h>

#include "runtime/base/raw_memory.h"
#include "runtime/report/modules.h"

namespace penumbra::report {
namespace {

struct SymbolTable {
  const Elf64_Sym* symbols = nullptr;
  std::size_t count = 0;
  const char* strings = nullptr;
  std::size_t string_bytes = 0;
};

// Number of symbols by the GNU hash table: one past the end of the last chain.
std::size_t count_by_gnu_hash(const std::uint32_t* table) {
  const std::uint32_t buckets = table[0];
  const std::uint32_t first = table[1];
  const std::uint32_t bloom_words = table[2];
  const std::uint32_t* bucket = table + 4 + 2 * bloom_words;
  const std::uint32_t* chain = bucket + buckets;
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < buckets; ++i) {
    if (bucket[i] > last) last = bucket[i];
  }
  if (last < first) return first;
  while ((chain[last - first] & 1) == 0) ++last;
  return last + 1;
}

bool read_symbol_table(const Module& module, SymbolTable& table) {
  if (module.dynamic == 0) return false;
  const std::uint32_t* gnu_hash = nullptr;
  const std::uint32_t* sysv_hash = nullptr;
  for (auto* entry = reinterpret_cast<const Elf64_Dyn*>(module.dynamic); entry->d_tag != DT_NULL; ++entry) {
    // glibc relocates the section in place, but not the vdso's.
    std::uintptr_t address = entry->d_un.d_ptr;
    if (address < module.begin) address += module.bias;
    switch (entry->d_tag) {
      case DT_SYMTAB: table.symbols = reinterpret_cast<const Elf64_Sym*>(address); break;
      case DT_STRTAB: table.strings = reinterpret_cast<const char*>(address); break;
      case DT_STRSZ: table.string_bytes = entry->d_un.d_val; break;
      case DT_GNU_HASH: gnu_hash = reinterpret_cast<const std::uint32_t*>(address); break;
      case DT_HASH: sysv_hash = reinterpret_cast<const std::uint32_t*>(address); break;
      default: break;
    }
  }
  if (table.symbols == nullptr || table.strings == nullptr) return false;
  if (sysv_hash != nullptr) {
    table.count = sysv_hash[1];
  } else if (gnu_hash != nullptr) {
    table.count = count_by_gnu_hash(gnu_hash);
  }
  return table.count != 0;
}

bool names_code(const Elf64_Sym& symbol) {
  const unsigned type = ELF64_ST_TYPE(symbol.st_info);
  return symbol.st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE);
}

// Of two names for one address the public one: `memcpy` rather than `__memcpy_alias`.
unsigned leading_underscores(const char* name) {
  unsigned n = 0;
  while (name[n] == '_') ++n;
  return n;
}

// What .eh_frame_hdr says when its table has the one form that linkers write: 4-byte offsets from the header.
constexpr std::uint8_t kPointerRelative4 = 0x1b;
constexpr std::uint8_t kHeaderRelative4 = 0x3b;
constexpr std::uint8_t kUnsigned4 = 0x03;

struct FrameTableEntry {
  std::int32_t function;
  std::int32_t description;
};

template <class T>
T load(std::uintptr_t at) {
  T value;
  raw_copy(&value, reinterpret_cast<const void*>(at), sizeof value);
  return value;
}

}  // namespace

Symbol nearest_symbol(const Module& module, std::uintptr_t pc) {
  Symbol best;
  SymbolTable table;
  if (!read_symbol_table(module, table)) return best;
  for (std::size_t i = 1; i < table.count; ++i) {
    const Elf64_Sym& symbol = table.symbols[i];
    if (!names_code(symbol) || symbol.st_name >= table.string_bytes) continue;
    const std::uintptr_t begin = module.bias + symbol.st_value;
    if (begin > pc || begin < module.begin) continue;
    const bool covers = pc - begin < symbol.st_size;
    const char* name = table.strings + symbol.st_name;
    const bool better =
        best.name == nullptr || covers > best.covers ||
        (covers == best.covers &&
         (begin > best.begin || (begin == best.begin && leading_underscores(name) < leading_underscores(best.name))));
    if (better) best = Symbol{name, begin, symbol.st_size, covers};
  }
  return best;
}

Bounds function_bounds(const Module& module, std::uintptr_t pc) {
  const std::uintptr_t header = module.eh_frame_header;
  if (header == 0) return {};
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(header);
  if (bytes[0] != 1 || bytes[1] != kPointerRelative4 || bytes[2] != kUnsigned4 || bytes[3] != kHeaderRelative4) {
    return {};
  }
  const auto count = load<std::uint32_t>(header + 8);
  const std::uintptr_t entries = header + 12;
  std::uint32_t low = 0;
  std::uint32_t high = count;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    const auto entry = load<FrameTableEntry>(entries + middle * sizeof(FrameTableEntry));
    if (header + static_cast<std::uintptr_t>(static_cast<std::intptr_t>(entry.function)) <= pc) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == 0) return {};
  const auto entry = load<FrameTableEntry>(entries + (low - 1) * sizeof(FrameTableEntry));
  const std::uintptr_t begin = header + static_cast<std::uintptr_t>(static_cast<std::intptr_t>(entry.function));
  const std::uintptr_t fde = header + static_cast<std::uintptr_t>(static_cast<std::intptr_t>(entry.description));
  // Length, distance to the common entry, then begin and length of the function, in the form that nearly every
  // common entry chooses ("zR" with 4-byte pc-relative pointers); a begin that differs betrays another form.
  const auto relative = load<std::int32_t>(fde + 8);
  if (fde + 8 + static_cast<std::uintptr_t>(static_cast<std::intptr_t>(relative)) != begin) return {};
  const auto length = load<std::uint32_t>(fde + 12);
  if (pc - begin >= length) return {};
  return {begin, length};
}

}  // namespace penumbra::report
