#include "runtime/process/program_file.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>

#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"
#include "runtime/process/elf_names.h"

namespace penumbra::process {
namespace {

// How a sanitizer shows: gcc's and clang's shared runtimes by the library needed, clang's static ones by the
// symbol that the executable exports. ASan's runtime holds LSan's, so ASan comes first.
struct SanitizerSigns {
  const char* name;
  const char* gcc_library;
  const char* clang_library;
  const char* start_symbol;
};

constexpr SanitizerSigns kSanitizers[] = {
    {"AddressSanitizer", "libasan.so", "libclang_rt.asan", "__asan_init"},
    {"HWAddressSanitizer", "libhwasan.so", "libclang_rt.hwasan", "__hwasan_init"},
    {"ThreadSanitizer", "libtsan.so", "libclang_rt.tsan", "__tsan_init"},
    {"MemorySanitizer", "libmsan.so", "libclang_rt.msan", "__msan_init"},
    {"LeakSanitizer", "liblsan.so", "libclang_rt.lsan", "__lsan_init"},
};

// gcc -static-libasan exports no start symbol, but the runtime inside looks for the program's own symbolizer, and
// replaces malloc. (UBSan's static runtime does the first only, and lives well with us.)
constexpr char kStaticRuntimeSign[] = "__sanitizer_symbolize_code";
constexpr char kStaticRuntimeName[] = "a sanitizer";

constexpr std::size_t kMostSegments = 32;
// A mapped dynamic section ends with DT_NULL; this many bytes only stop a search that missed it.
constexpr std::size_t kMostDynamicBytes = 64u << 10;

struct FileImage {
  int fd;
  std::size_t segment_count;
  Elf64_Phdr segments[kMostSegments];
};

bool read_exactly(int fd, void* into, std::size_t bytes, std::uint64_t offset) {
  const os::Result got = os::read_at(fd, into, bytes, offset);
  return got.ok() && static_cast<std::size_t>(got.value()) == bytes;
}

bool read_file_image(const void* cookie, std::uint64_t address, void* into, std::size_t bytes) {
  const auto& image = *static_cast<const FileImage*>(cookie);
  for (std::size_t i = 0; i < image.segment_count; ++i) {
    const Elf64_Phdr& segment = image.segments[i];
    if (segment.p_type != PT_LOAD || address < segment.p_vaddr) continue;
    const std::uint64_t within = address - segment.p_vaddr;
    if (within >= segment.p_filesz || bytes > segment.p_filesz - within) continue;
    return read_exactly(image.fd, into, bytes, segment.p_offset + within);
  }
  return false;
}

const char* sanitizer_in(const ElfNames& names) {
  for (const SanitizerSigns& signs : kSanitizers) {
    if (names.needs_library(signs.gcc_library) || names.needs_library(signs.clang_library) ||
        names.defines(signs.start_symbol)) {
      return signs.name;
    }
  }
  return names.defines("malloc") && names.wants_weakly(kStaticRuntimeSign) ? kStaticRuntimeName : nullptr;
}

void inspect_elf(int fd, const Elf64_Ehdr& header, ProgramFile& program) {
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64) {
    program.kind = ProgramKind::kForeign;
    return;
  }
  FileImage image;
  image.fd = fd;
  image.segment_count = header.e_phnum;
  if (header.e_phentsize != sizeof(Elf64_Phdr) || image.segment_count > kMostSegments ||
      !read_exactly(fd, image.segments, image.segment_count * sizeof(Elf64_Phdr), header.e_phoff)) {
    return;
  }
  const Elf64_Phdr* dynamic = nullptr;
  bool has_loader = false;
  for (std::size_t i = 0; i < image.segment_count; ++i) {
    if (image.segments[i].p_type == PT_INTERP) has_loader = true;
    if (image.segments[i].p_type == PT_DYNAMIC) dynamic = &image.segments[i];
  }
  if (!has_loader || dynamic == nullptr) {
    program.kind = ProgramKind::kStatic;
    return;
  }
  const ElfNames names(read_file_image, &image, dynamic->p_vaddr, dynamic->p_filesz, 0);
  program.sanitizer = sanitizer_in(names);
  program.kind = program.sanitizer != nullptr ? ProgramKind::kSanitizer : ProgramKind::kDynamic;
}

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

// "#! interpreter argument with blanks", as load_script in fs/binfmt_script.c reads it.
void inspect_script(const char* line, std::size_t bytes, ProgramFile& program) {
  std::size_t end = 2;
  while (end < bytes && line[end] != '\n' && line[end] != '\0') ++end;
  std::size_t at = 2;
  while (end > at && is_blank(line[end - 1])) --end;
  while (at < end && is_blank(line[at])) ++at;
  std::size_t length = 0;
  for (; at < end && !is_blank(line[at]); ++at) program.interpreter[length++] = line[at];
  program.interpreter[length] = '\0';
  while (at < end && is_blank(line[at])) ++at;
  std::size_t argument_length = 0;
  for (; at < end; ++at) program.argument[argument_length++] = line[at];
  program.argument[argument_length] = '\0';
  program.kind = length > 0 ? ProgramKind::kScript : ProgramKind::kOther;
}

// A module that the loader has mapped, and believed, so that its tables are where it says.
bool read_mapped_image(const void* cookie, std::uint64_t address, void* into, std::size_t bytes) {
  const auto& map = *static_cast<const link_map*>(cookie);
  raw_copy(into, reinterpret_cast<const void*>(map.l_addr + address), bytes);
  return true;
}

}  // namespace

void inspect_program(int fd, ProgramFile& program) {
  program.kind = ProgramKind::kUnknown;
  program.changes_id = false;
  program.sanitizer = nullptr;
  program.interpreter[0] = program.argument[0] = '\0';

  const os::Result mode = os::file_mode(fd);
  if (!mode.ok() || !S_ISREG(static_cast<mode_t>(mode.value()))) return;
  const auto bits = static_cast<unsigned>(mode.value());
  program.changes_id = (bits & S_ISUID) != 0 || (bits & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP);

  // One read serves both kinds of head; a script may be shorter than an ELF header.
  union {
    Elf64_Ehdr elf;
    char text[kScriptLineBytes];
  } head;
  const os::Result got = os::read_at(fd, head.text, sizeof head.text - 1, 0);
  if (!got.ok()) return;
  const auto bytes = static_cast<std::size_t>(got.value());
  if (bytes >= 2 && head.text[0] == '#' && head.text[1] == '!') {
    inspect_script(head.text, bytes, program);
    // The kernel takes the set-ID bits of the interpreter, not of the script.
    program.changes_id = false;
  } else if (bytes >= sizeof(Elf32_Ehdr) && raw_compare(head.text, ELFMAG, SELFMAG) == 0) {
    if (bytes < sizeof(Elf64_Ehdr)) raw_set(head.text + bytes, 0, sizeof(Elf64_Ehdr) - bytes);
    inspect_elf(fd, head.elf, program);
  } else {
    program.kind = ProgramKind::kOther;
  }
}

bool follow_scripts(int dirfd, const char* path, ProgramFile& program) {
  program.kind = ProgramKind::kUnknown;
  program.changes_id = false;
  char next[kScriptLineBytes];
  for (int depth = 0; depth <= kScriptDepth; ++depth) {
    const os::Result fd = os::open_read_at(dirfd, path);
    if (!fd.ok()) {
      program.kind = ProgramKind::kUnknown;
      return false;
    }
    inspect_program(static_cast<int>(fd.value()), program);
    os::close(static_cast<int>(fd.value())).ignore();
    if (program.kind != ProgramKind::kScript) return true;
    raw_copy(next, program.interpreter, sizeof next);
    path = next;
    dirfd = AT_FDCWD;
  }
  return false;
}

// Not dl_iterate_phdr: an executable with TSan inside brings its own, which may not run yet.
const char* sanitizer_of_this_process() {
  for (const link_map* map = _r_debug.r_map; map != nullptr; map = map->l_next) {
    if (map->l_ld == nullptr) continue;
    const auto dynamic = reinterpret_cast<std::uintptr_t>(map->l_ld) - map->l_addr;
    const ElfNames names(read_mapped_image, map, dynamic, kMostDynamicBytes, map->l_addr);
    if (const char* sanitizer = sanitizer_in(names)) return sanitizer;
  }
  return nullptr;
}

}  // namespace penumbra::process
