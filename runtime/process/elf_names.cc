#include "runtime/process/elf_names.h"

#include "runtime/base/raw_memory.h"

namespace penumbra::process {
namespace {

// A chain of the hash table that is longer than this belongs to a damaged file.
constexpr std::uint64_t kLongestChain = 1u << 16;
// Undefined symbols looked through: the largest Debian programs have some thousands.
constexpr std::uint64_t kMostUndefined = 1u << 15;
constexpr std::size_t kLongestName = 64;

std::uint32_t gnu_hash_of(const char* name) {
  std::uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

}  // namespace

ElfNames::ElfNames(ImageReader read, const void* cookie, std::uint64_t dynamic, std::uint64_t dynamic_bytes,
                   std::uint64_t bias)
    : read_(read), cookie_(cookie) {
  // The vdso's section is read-only, so its pointers stay as they were: below the bias.
  const auto own = [bias](std::uint64_t pointer) { return pointer < bias ? pointer : pointer - bias; };
  for (std::uint64_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic_bytes; at += sizeof(Elf64_Dyn)) {
    Elf64_Dyn entry;
    if (!read_(cookie_, dynamic + at, &entry, sizeof entry) || entry.d_tag == DT_NULL) break;
    switch (entry.d_tag) {
      case DT_NEEDED:
        if (needed_count_ < kMostNeeded) needed_[needed_count_++] = entry.d_un.d_val;
        break;
      case DT_STRTAB: strings_ = own(entry.d_un.d_ptr); break;
      case DT_STRSZ: strings_bytes_ = entry.d_un.d_val; break;
      case DT_SYMTAB: symbols_ = own(entry.d_un.d_ptr); break;
      case DT_GNU_HASH: gnu_hash_ = own(entry.d_un.d_ptr); break;
      default: break;
    }
  }
}

bool ElfNames::name_starts_with(std::uint64_t offset, const char* prefix, bool whole) const {
  const std::size_t length = raw_length(prefix) + (whole ? 1 : 0);
  char name[kLongestName];
  if (length > sizeof name || offset >= strings_bytes_ || length > strings_bytes_ - offset) return false;
  return read_(cookie_, strings_ + offset, name, length) && raw_compare(name, prefix, length) == 0;
}

bool ElfNames::read_symbol(std::uint64_t index, Elf64_Sym& symbol) const {
  return read_(cookie_, symbols_ + index * sizeof symbol, &symbol, sizeof symbol);
}

bool ElfNames::needs_library(const char* prefix) const {
  for (std::size_t i = 0; i < needed_count_; ++i) {
    if (name_starts_with(needed_[i], prefix, false)) return true;
  }
  return false;
}

// Layout (glibc, elf/dl-lookup.c): nbuckets, first index, bloom words, shift; bloom; buckets; chain, whose last
// link of a bucket has bit 0 set.
bool ElfNames::find(const char* symbol, Elf64_Sym& found) const {
  std::uint32_t head[4];
  if (gnu_hash_ == 0 || !read_(cookie_, gnu_hash_, head, sizeof head)) return false;
  const auto [buckets, first, bloom_words, shift] = head;
  if (buckets == 0 || bloom_words == 0 || shift >= 32) return false;
  const std::uint32_t hash = gnu_hash_of(symbol);
  const std::uint64_t bloom = gnu_hash_ + sizeof head;
  std::uint64_t word;
  if (!read_(cookie_, bloom + hash / 64 % bloom_words * sizeof word, &word, sizeof word)) return false;
  if (((word >> (hash % 64)) & (word >> ((hash >> shift) % 64)) & 1) == 0) return false;

  const std::uint64_t bucket_table = bloom + std::uint64_t{bloom_words} * sizeof word;
  std::uint32_t index;
  if (!read_(cookie_, bucket_table + hash % buckets * sizeof index, &index, sizeof index)) return false;
  if (index < first) return false;
  const std::uint64_t chain = bucket_table + std::uint64_t{buckets} * sizeof index;
  for (std::uint64_t step = 0; step < kLongestChain; ++step, ++index) {
    std::uint32_t link;
    if (!read_(cookie_, chain + std::uint64_t{index - first} * sizeof link, &link, sizeof link)) return false;
    if ((link | 1) == (hash | 1)) {
      if (read_symbol(index, found) && name_starts_with(found.st_name, symbol, true)) return true;
    }
    if ((link & 1) != 0) return false;
  }
  return false;
}

bool ElfNames::defines(const char* symbol) const {
  Elf64_Sym found;
  return find(symbol, found);
}

std::uint64_t ElfNames::value_of(const char* symbol) const {
  Elf64_Sym found;
  return find(symbol, found) ? found.st_value : 0;
}

bool ElfNames::wants_weakly(const char* symbol) const {
  std::uint32_t head[2];
  // The hash table covers the symbols from its first index on; the undefined ones stand before it.
  if (gnu_hash_ == 0 || !read_(cookie_, gnu_hash_, head, sizeof head)) return false;
  const std::uint64_t end = head[1] < kMostUndefined ? head[1] : kMostUndefined;
  constexpr std::uint64_t kAtOnce = 64;
  Elf64_Sym some[kAtOnce];
  for (std::uint64_t index = 0; index < end; index += kAtOnce) {
    const std::uint64_t count = end - index < kAtOnce ? end - index : kAtOnce;
    if (!read_(cookie_, symbols_ + index * sizeof(Elf64_Sym), some, count * sizeof(Elf64_Sym))) return false;
    for (std::uint64_t i = 0; i < count; ++i) {
      const Elf64_Sym& candidate = some[i];
      // Weak ones are few; comparing every undefined name would be a read each.
      if (ELF64_ST_BIND(candidate.st_info) != STB_WEAK || candidate.st_shndx != SHN_UNDEF) continue;
      if (name_starts_with(candidate.st_name, symbol, true)) return true;
    }
  }
  return false;
}

}  // namespace penumbra::process
