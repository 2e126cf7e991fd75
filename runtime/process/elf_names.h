// Looks up names in an ELF image's dynamic section: the libraries it needs and the symbols it defines or wants.
//
// The image is reached through a reader, so the same code serves a file that is about to be executed and a program
// that is mapped already. Everything read is bounded and believed only inside its bounds: a damaged file has no names.
//
// Symbols are found through the GNU hash table, as the loader does it. An image that has only the old DT_HASH (no
// compiler of Debian makes one) defines nothing here.
//
// zone: signal-safe
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>

namespace penumbra::process {

// Copies [address, address+bytes) of the image, in its own virtual addresses; false where that is not all there.
using ImageReader = bool (*)(const void* cookie, std::uint64_t address, void* into, std::size_t bytes);

class ElfNames {
 public:
  // `dynamic` and `dynamic_bytes`: PT_DYNAMIC, as an address of the image. In memory the loader has relocated the
  // pointers of a dynamic section: `bias` is what it added (0 for a file).
  ElfNames(ImageReader read, const void* cookie, std::uint64_t dynamic, std::uint64_t dynamic_bytes,
           std::uint64_t bias);

  // A library named `prefix`... is needed.
  bool needs_library(const char* prefix) const;
  bool defines(const char* symbol) const;
  // Its value in the image's own virtual addresses; 0 where it is not defined. Of several versions any one.
  std::uint64_t value_of(const char* symbol) const;
  // `symbol` is among the weak undefined ones.
  bool wants_weakly(const char* symbol) const;

 private:
  static constexpr std::size_t kMostNeeded = 64;

  bool name_starts_with(std::uint64_t offset, const char* prefix, bool whole) const;
  bool read_symbol(std::uint64_t index, Elf64_Sym& symbol) const;
  bool find(const char* symbol, Elf64_Sym& found) const;

  ImageReader read_;
  const void* cookie_;
  std::uint64_t strings_ = 0;
  std::uint64_t strings_bytes_ = 0;
  std::uint64_t symbols_ = 0;
  std::uint64_t gnu_hash_ = 0;
  std::uint64_t needed_[kMostNeeded];
  std::size_t needed_count_ = 0;
};

}  // namespace penumbra::process
