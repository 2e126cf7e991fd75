#include "instrument/rewrite/identity.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "runtime/base/content_key.h"

namespace penumbra::rewrite {
namespace {

class File {
 public:
  explicit File(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat status {};
    if (fd_ >= 0 && fstat(fd_, &status) == 0 && S_ISREG(status.st_mode)) {
      bytes_ = static_cast<std::uint64_t>(status.st_size);
    }
  }
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // False unless all of it is there.
  bool read(std::uint64_t offset, std::span<std::uint8_t> into) const {
    if (offset > bytes_ || into.size() > bytes_ - offset) return false;
    return pread(fd_, into.data(), into.size(), static_cast<off_t>(offset)) == static_cast<ssize_t>(into.size());
  }

  bool holds(std::uint64_t bytes) const { return bytes <= bytes_; }

 private:
  int fd_;
  std::uint64_t bytes_ = 0;
};

bool is_module(const Elf64_Ehdr& header) {
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
         header.e_machine == EM_X86_64 && (header.e_type == ET_EXEC || header.e_type == ET_DYN) &&
         header.e_phentsize == sizeof(Elf64_Phdr);
}

}  // namespace

std::string build_id_in(std::span<const std::uint8_t> notes) {
  for (std::size_t at = 0; at + sizeof(Elf64_Nhdr) <= notes.size();) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes.data() + at, sizeof note);
    const std::size_t name = at + sizeof note;
    const std::size_t description = name + ((std::size_t{note.n_namesz} + 3) & ~std::size_t{3});
    const std::size_t next = description + ((std::size_t{note.n_descsz} + 3) & ~std::size_t{3});
    if (next > notes.size() || next <= at) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(notes.data() + name, "GNU", 4) == 0) {
      std::string id;
      for (std::size_t i = 0; i < note.n_descsz; ++i) id += fmt::format("{:02x}", notes[description + i]);
      return id;
    }
    at = next;
  }
  return {};
}

std::string identity_of_file(const std::string& path) {
  const File file(path);
  Elf64_Ehdr header;
  if (!file.read(0, {reinterpret_cast<std::uint8_t*>(&header), sizeof header}) || !is_module(header)) return {};
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  if (!file.read(header.e_phoff,
                 {reinterpret_cast<std::uint8_t*>(segments.data()), segments.size() * sizeof(Elf64_Phdr)})) {
    return {};
  }
  std::vector<std::uint8_t> contents;
  const auto read = [&](const Elf64_Phdr& segment, std::size_t bytes) {
    if (!file.holds(bytes)) return false;
    contents.resize(bytes);
    return file.read(segment.p_offset, contents);
  };
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_NOTE || !read(segment, segment.p_filesz)) continue;
    if (std::string id = build_id_in(contents); !id.empty()) return id;
  }
  ContentKey key;
  bool has_contents = false;
  for (const Elf64_Phdr& segment : segments) {
    if (!ContentKey::covers(segment)) continue;
    if (!read(segment, ContentKey::bytes_of(segment))) return {};
    key.add(segment.p_vaddr, contents.data(), contents.size());
    has_contents = true;
  }
  return has_contents ? std::string(key.text().characters) : std::string();
}

}  // namespace penumbra::rewrite
