#include "elf_image.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "runtime/base/config.h"

namespace penumbra::testing {
namespace {

[[noreturn]] void fail(const std::string& path, const char* why) {
  throw std::runtime_error(path + ": " + why);
}

}  // namespace

ElfImage::ElfImage(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(path, "cannot be opened");
  Elf64_Ehdr elf;
  if (pread(fd, &elf, sizeof elf, 0) != sizeof elf) fail(path, "is too short");
  std::vector<Elf64_Phdr> segments(elf.e_phnum);
  const auto table_bytes = static_cast<ssize_t>(segments.size() * sizeof(Elf64_Phdr));
  if (pread(fd, segments.data(), static_cast<std::size_t>(table_bytes), static_cast<off_t>(elf.e_phoff)) !=
      table_bytes) {
    fail(path, "has no program headers");
  }
  std::uintptr_t low = ~std::uintptr_t{0};
  std::uintptr_t high = 0;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_LOAD) continue;
    low = std::min<std::uintptr_t>(low, round_down(segment.p_vaddr, kPageSize));
    high = std::max<std::uintptr_t>(high, round_up(segment.p_vaddr + segment.p_memsz, kPageSize));
  }
  bytes_ = high - low;
  memory_ = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory_ == MAP_FAILED) fail(path, "does not fit");
  bias_ = reinterpret_cast<std::uintptr_t>(memory_) - low;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_LOAD) continue;
    const std::uintptr_t at = bias_ + round_down(segment.p_vaddr, kPageSize);
    const std::size_t before = segment.p_vaddr % kPageSize;
    if (mmap(reinterpret_cast<void*>(at), before + segment.p_filesz, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd,
             static_cast<off_t>(segment.p_offset - before)) == MAP_FAILED) {
      fail(path, "cannot be mapped");
    }
  }
  close(fd);
  const auto range_around = [&](const std::uint8_t* inside) {
    for (const Elf64_Phdr& segment : segments) {
      const auto* begin = reinterpret_cast<const std::uint8_t*>(bias_ + segment.p_vaddr);
      const stacks::ByteRange range{begin, begin + segment.p_filesz};
      if (segment.p_type == PT_LOAD && range.contains(inside)) return range;
    }
    return stacks::ByteRange{};
  };
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_GNU_EH_FRAME) continue;
    const auto* begin = reinterpret_cast<const std::uint8_t*>(bias_ + segment.p_vaddr);
    header_ = {begin, begin + segment.p_filesz};
  }
  const std::uint8_t* record = stacks::eh_frame_of(header_);
  if (record == nullptr) fail(path, "has no .eh_frame_hdr");
  frame_ = range_around(record);
  while (record != nullptr) {
    stacks::CfiEntry entry;
    const std::uint8_t* next;
    if (stacks::decode_entry(frame_, record, entry, &next)) entries_.push_back(entry);
    record = next;
  }
}

ElfImage::~ElfImage() {
  munmap(memory_, bytes_);
}

}  // namespace penumbra::testing
