#include "instrument/rewrite/elf_image.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "instrument/rewrite/identity.h"
#include "runtime/base/content_key.h"
#include "runtime/base/module_format.h"

namespace penumbra::rewrite {
namespace {

std::uint64_t little_endian(std::span<const std::uint8_t> bytes, unsigned count) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data(), count);
  return value;
}

}  // namespace

ElfImage::ElfImage(const std::string& path) : path_(path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw ImageError(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  struct stat status {};
  void* mapped = MAP_FAILED;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
    mapped = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  }
  close(fd);
  if (mapped == MAP_FAILED) throw ImageError(fmt::format("{}: is not a file that can be mapped", path));
  file_ = {static_cast<const std::uint8_t*>(mapped), static_cast<std::size_t>(status.st_size)};
  try {
    read_segments();
    read_dynamic();
    read_sections();
  } catch (...) {
    munmap(mapped, file_.size());
    throw;
  }
  std::ranges::sort(symbols_, {}, &Symbol::address);
  std::ranges::sort(undefined_);
}

ElfImage::~ElfImage() {
  munmap(const_cast<std::uint8_t*>(file_.data()), file_.size());
}

void ElfImage::fail(const std::string& what, std::uint64_t offset) const {
  throw ImageError(fmt::format("{}: {} (at offset {:#x})", path_, what, offset));
}

std::span<const std::uint8_t> ElfImage::file_range(std::uint64_t offset, std::uint64_t bytes,
                                                   const char* what) const {
  if (offset > file_.size() || bytes > file_.size() - offset)
    fail(fmt::format("{} lies outside the file", what), offset);
  return file_.subspan(offset, bytes);
}

template <class T>
std::span<const T> ElfImage::table(std::uint64_t offset, std::uint64_t count, const char* what) const {
  if (count > file_.size() / sizeof(T)) fail(fmt::format("{} is larger than the file", what), offset);
  const auto bytes = file_range(offset, count * sizeof(T), what);
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(T) != 0)
    fail(fmt::format("{} is misaligned", what), offset);
  return {reinterpret_cast<const T*>(bytes.data()), count};
}

void ElfImage::read_segments() {
  const auto& header = table<Elf64_Ehdr>(0, 1, "the ELF header")[0];
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) fail("is not an ELF file", 0);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64) fail("is not for x86-64", 0);
  if (header.e_type != ET_EXEC && header.e_type != ET_DYN) fail("is neither an executable nor a shared library", 0);
  is_position_independent_ = header.e_type == ET_DYN;
  entry_ = header.e_entry;
  if (header.e_phentsize != sizeof(Elf64_Phdr)) fail("has program headers of a strange size", header.e_phoff);
  for (const Elf64_Phdr& ph : table<Elf64_Phdr>(header.e_phoff, header.e_phnum, "the program header table")) {
    if (ph.p_type == PT_LOAD && ph.p_memsz != 0) {
      if (ph.p_vaddr + ph.p_memsz < ph.p_vaddr) fail("has a segment that wraps around", ph.p_offset);
      Segment segment;
      segment.address = ph.p_vaddr;
      segment.memory_bytes = ph.p_memsz;
      segment.bytes = file_range(ph.p_offset, std::min(ph.p_filesz, ph.p_memsz), "a segment");
      segment.is_executable = (ph.p_flags & PF_X) != 0;
      segment.is_writable = (ph.p_flags & PF_W) != 0;
      segments_.push_back(segment);
    } else if (ph.p_type == PT_DYNAMIC) {
      dynamic_ = ph.p_vaddr;
      dynamic_bytes_ = ph.p_filesz;
    } else if (ph.p_type == PT_GNU_EH_FRAME) {
      eh_frame_header_ = ph.p_vaddr;
    } else if (ph.p_type == PT_NOTE) {
      const auto notes = file_range(ph.p_offset, ph.p_filesz, "a note segment");
      if (identity_.empty()) identity_ = build_id_in(notes);
    }
  }
  if (segments_.empty()) fail("has nothing to load", header.e_phoff);
  if (identity_.empty()) {
    ContentKey key;
    for (const Elf64_Phdr& ph : table<Elf64_Phdr>(header.e_phoff, header.e_phnum, "the program header table")) {
      if (!ContentKey::covers(ph)) continue;
      const auto bytes = file_range(ph.p_offset, ContentKey::bytes_of(ph), "a segment");
      key.add(ph.p_vaddr, bytes.data(), bytes.size());
    }
    identity_ = key.text().characters;
  }
  std::ranges::sort(segments_, {}, &Segment::address);
}

std::span<const std::uint8_t> ElfImage::at(std::uint64_t address) const {
  for (const Segment& segment : segments_) {
    if (segment.contains(address)) {
      const std::uint64_t skip = address - segment.address;
      return skip < segment.bytes.size() ? segment.bytes.subspan(skip) : std::span<const std::uint8_t>();
    }
  }
  return {};
}

std::span<const std::uint8_t> ElfImage::pages_of(const Segment& segment) const {
  const auto offset = static_cast<std::uint64_t>(segment.bytes.data() - file_.data());
  const std::uint64_t begin = offset - segment.address % kPageSize;
  const std::uint64_t end = begin + round_up(segment.address % kPageSize + segment.bytes.size(), kPageSize);
  if (segment.address % kPageSize > offset) return {};
  return file_.subspan(begin, std::min<std::uint64_t>(end, file_.size()) - begin);
}

bool ElfImage::is_code(std::uint64_t address) const {
  return std::ranges::any_of(segments_, [&](const Segment& s) { return s.is_executable && s.contains(address); });
}

bool ElfImage::is_data(std::uint64_t address) const {
  return std::ranges::any_of(segments_, [&](const Segment& s) { return !s.is_executable && s.contains(address); });
}

std::optional<std::uint64_t> ElfImage::word(std::uint64_t address, unsigned bytes) const {
  const auto from = at(address);
  if (from.size() < bytes) return std::nullopt;
  return little_endian(from, bytes);
}

std::optional<std::uint64_t> ElfImage::pointer(std::uint64_t address) const {
  // RELA keeps the value beside the place; what stands in the place means nothing.
  const auto known =
      std::ranges::lower_bound(relative_, address, {}, &std::pair<std::uint64_t, std::uint64_t>::first);
  if (known != relative_.end() && known->first == address) return known->second;
  return word(address, 8);
}

std::string_view ElfImage::name_at(std::span<const std::uint8_t> names, std::uint64_t offset) const {
  if (offset >= names.size()) return {};
  const auto* begin = reinterpret_cast<const char*>(names.data() + offset);
  return {begin, strnlen(begin, names.size() - offset)};
}

void ElfImage::add_symbols(std::span<const std::uint8_t> symbols, std::span<const std::uint8_t> names,
                           bool are_dynamic) {
  for (std::size_t i = 0; i + sizeof(Elf64_Sym) <= symbols.size(); i += sizeof(Elf64_Sym)) {
    Elf64_Sym s;
    std::memcpy(&s, symbols.data() + i, sizeof s);
    const std::string_view name = name_at(names, s.st_name);
    const unsigned type = ELF64_ST_TYPE(s.st_info);
    if (s.st_shndx == SHN_UNDEF) {
      if (!name.empty()) undefined_.push_back(name);
    } else if (type == STT_FUNC || type == STT_GNU_IFUNC || (type == STT_NOTYPE && is_code(s.st_value))) {
      symbols_.push_back({name, s.st_value, s.st_size, type != STT_NOTYPE, type == STT_GNU_IFUNC, are_dynamic});
    }
  }
}

// Section headers may be missing; then the dynamic symbols are all there is.
void ElfImage::read_sections() {
  const auto& header = table<Elf64_Ehdr>(0, 1, "the ELF header")[0];
  if (header.e_shoff == 0 || header.e_shnum == 0 || header.e_shentsize != sizeof(Elf64_Shdr)) return;
  const auto sections = table<Elf64_Shdr>(header.e_shoff, header.e_shnum, "the section header table");
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB && section.sh_type != SHT_DYNSYM) continue;
    if (section.sh_link >= sections.size()) fail("has a symbol table without names", section.sh_offset);
    const Elf64_Shdr& names = sections[section.sh_link];
    add_symbols(file_range(section.sh_offset, section.sh_size, "a symbol table"),
                file_range(names.sh_offset, names.sh_size, "a string table"), section.sh_type == SHT_DYNSYM);
  }
}

void ElfImage::read_dynamic() {
  if (dynamic_ == 0) return;
  std::uint64_t rela = 0;
  std::uint64_t rela_bytes = 0;
  std::uint64_t plt_rela = 0;
  std::uint64_t plt_rela_bytes = 0;
  const auto entries = at(dynamic_);
  for (std::size_t i = 0; i + sizeof(Elf64_Dyn) <= std::min<std::uint64_t>(entries.size(), dynamic_bytes_);
       i += sizeof(Elf64_Dyn)) {
    Elf64_Dyn d;
    std::memcpy(&d, entries.data() + i, sizeof d);
    switch (d.d_tag) {
      case DT_RELA: rela = d.d_un.d_ptr; break;
      case DT_RELASZ: rela_bytes = d.d_un.d_val; break;
      case DT_JMPREL: plt_rela = d.d_un.d_ptr; break;
      case DT_PLTRELSZ: plt_rela_bytes = d.d_un.d_val; break;
      case DT_INIT:
      case DT_FINI: named_pointers_.push_back(d.d_un.d_ptr); break;
      case DT_TEXTREL: has_text_relocations_ = true; break;
      case DT_FLAGS: has_text_relocations_ |= (d.d_un.d_val & DF_TEXTREL) != 0; break;
      default: break;
    }
  }
  const auto read = [&](std::uint64_t table, std::uint64_t bytes) {
    const auto relocations = at(table);
    for (std::size_t i = 0;
         table != 0 && i + sizeof(Elf64_Rela) <= std::min<std::uint64_t>(relocations.size(), bytes);
         i += sizeof(Elf64_Rela)) {
      Elf64_Rela r;
      std::memcpy(&r, relocations.data() + i, sizeof r);
      const auto type = ELF64_R_TYPE(r.r_info);
      if (type == R_X86_64_RELATIVE) relative_.emplace_back(r.r_offset, static_cast<std::uint64_t>(r.r_addend));
      if (type == R_X86_64_IRELATIVE) resolvers_.push_back(static_cast<std::uint64_t>(r.r_addend));
    }
  };
  read(rela, rela_bytes);
  read(plt_rela, plt_rela_bytes);
  std::ranges::sort(relative_);
  // DT_RELR packs places whose words hold the addends themselves: the scan of data finds those.
}

std::vector<std::uint64_t> ElfImage::resolvers() const {
  std::vector<std::uint64_t> all = resolvers_;
  for (const Symbol& symbol : symbols_) {
    if (symbol.is_ifunc) all.push_back(symbol.address);
  }
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::vector<std::uint64_t> ElfImage::code_pointers() const {
  std::vector<std::uint64_t> pointers;
  const auto add = [&](std::uint64_t a) {
    if (is_code(a)) pointers.push_back(a);
  };
  add(entry_);
  for (const std::uint64_t a : named_pointers_) add(a);
  for (const std::uint64_t a : resolvers_) add(a);
  for (const auto& [place, addend] : relative_) add(addend);
  for (const Symbol& symbol : symbols_) {
    if (symbol.is_dynamic) add(symbol.address);
  }
  // Every aligned word of data that could be one: it errs toward more entries, which cost a jump each.
  for (const Segment& segment : segments_) {
    if (segment.is_executable) continue;
    for (std::size_t i = (8 - segment.address % 8) % 8; i + 8 <= segment.bytes.size(); i += 8) {
      add(little_endian(segment.bytes.subspan(i), 8));
    }
  }
  std::ranges::sort(pointers);
  pointers.erase(std::unique(pointers.begin(), pointers.end()), pointers.end());
  return pointers;
}

bool ElfImage::imports(std::string_view prefix) const {
  const auto first = std::ranges::lower_bound(undefined_, prefix);
  return first != undefined_.end() && first->starts_with(prefix);
}

}  // namespace penumbra::rewrite
