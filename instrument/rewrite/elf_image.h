// An ELF file as the rewriter sees it: segments by link-time address, symbols, and every place from which a pointer
// into the code can come.
//
// Addresses are link-time virtual addresses (the load base of a PIE is added elsewhere). The file is mapped read-only
// and never trusted: every offset is checked, and a file that does not fit gives an ImageError, never a crash.
//
// zone: hosted
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penumbra::rewrite {

// A file that cannot be rewritten, with a sentence for people: "FILE: what is wrong, at which offset".
class ImageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Segment {
  std::uint64_t address = 0;
  std::uint64_t memory_bytes = 0;
  std::span<const std::uint8_t> bytes;  // what the file holds of it
  bool is_executable = false;
  bool is_writable = false;

  std::uint64_t end() const { return address + memory_bytes; }
  bool contains(std::uint64_t a) const { return a >= address && a < end(); }
};

struct Symbol {
  std::string_view name;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  bool is_function = false;  // STT_FUNC or STT_GNU_IFUNC
  bool is_ifunc = false;
  bool is_dynamic = false;  // other modules may call it
};

class ElfImage {
 public:
  // Throws ImageError: not there, not ELF64 x86-64, not an executable or shared library, damaged.
  explicit ElfImage(const std::string& path);
  ~ElfImage();
  ElfImage(const ElfImage&) = delete;
  ElfImage& operator=(const ElfImage&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<Segment>& segments() const { return segments_; }
  bool is_position_independent() const { return is_position_independent_; }
  bool has_text_relocations() const { return has_text_relocations_; }
  // DT_NEEDED of a sanitizer, or an undefined __asan_* symbol: it carries its own checks (process ruling 6).
  bool imports(std::string_view prefix) const;
  // What its module files are known by: the build-id in hexadecimal, else the key of its contents (content_key.h).
  const std::string& identity() const { return identity_; }

  // Bytes of the file from this address to the end of its segment; empty where the file has none.
  std::span<const std::uint8_t> at(std::uint64_t address) const;
  // The file's bytes of whole pages around what the file holds of a segment; fewer at the end of the file.
  std::span<const std::uint8_t> pages_of(const Segment& segment) const;
  bool is_code(std::uint64_t address) const;
  // Readable without the execute permission: where jump tables and pointers lie.
  bool is_data(std::uint64_t address) const;
  std::optional<std::uint64_t> word(std::uint64_t address, unsigned bytes) const;  // little endian, zero extended

  // The pointer that stands at `address` once the loader has relocated the module, as a link-time address.
  std::optional<std::uint64_t> pointer(std::uint64_t address) const;

  // Sorted by address: from .symtab where there is one, and .dynsym.
  const std::vector<Symbol>& symbols() const { return symbols_; }
  // Undefined symbols by name, sorted.
  const std::vector<std::string_view>& undefined() const { return undefined_; }

  // Functions that choose what an ifunc stands for, from relocations and symbols: sorted, unique.
  std::vector<std::uint64_t> resolvers() const;

  // Address of .eh_frame_hdr (PT_GNU_EH_FRAME), 0 when there is none.
  std::uint64_t eh_frame_header() const { return eh_frame_header_; }

  // Sorted, unique addresses in code that data, relocations, dynamic symbols, or the entry point name. Neither text nor
  // .symtab is looked at here.
  std::vector<std::uint64_t> code_pointers() const;

 private:
  [[noreturn]] void fail(const std::string& what, std::uint64_t offset) const;
  std::span<const std::uint8_t> file_range(std::uint64_t offset, std::uint64_t bytes, const char* what) const;
  template <class T>
  std::span<const T> table(std::uint64_t offset, std::uint64_t count, const char* what) const;
  void read_segments();
  void read_sections();
  void read_dynamic();
  void add_symbols(std::span<const std::uint8_t> symbols, std::span<const std::uint8_t> names, bool are_dynamic);
  std::string_view name_at(std::span<const std::uint8_t> names, std::uint64_t offset) const;

  std::string path_;
  std::span<const std::uint8_t> file_;
  std::vector<Segment> segments_;
  std::vector<Symbol> symbols_;
  std::vector<std::string_view> undefined_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> relative_;  // place, addend: sorted by place
  std::vector<std::uint64_t> named_pointers_;                      // DT_INIT, DT_FINI
  std::vector<std::uint64_t> resolvers_;                           // IRELATIVE resolvers
  std::string identity_;
  std::uint64_t entry_ = 0;
  std::uint64_t dynamic_ = 0;
  std::uint64_t dynamic_bytes_ = 0;
  std::uint64_t eh_frame_header_ = 0;
  bool is_position_independent_ = false;
  bool has_text_relocations_ = false;
};

}  // namespace penumbra::rewrite
