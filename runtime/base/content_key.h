// What a module without a build-id is known by: a sum of what it maps and nobody changes.
//
// That is the file's bytes of every loaded segment that is readable and not writable: code, unwind tables, constants,
// relocations with their addends, dynamic symbols. The launcher takes them from the file and the checked process from its
// memory, as mapped, so a file that was replaced meanwhile cannot be taken for the one that runs. Relocation changes none of
// them; a module with text relocations is not rewritten anyhow. Data is not part of it: what it names without a
// relocation can only make a place run unchecked.
//
//     key = "content-" two sums over, for each segment: address, bytes, contents
//
// Some 4 GB/s, and only for modules without a build-id. Against accidents, not against malice: who can choose the bytes of
// a program needs no collision.
//
// zone: signal-safe
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>

#include "runtime/base/module_format.h"

namespace penumbra {

class ContentKey {
 public:
  // Is this segment part of the key, and how much of it?
  static constexpr bool covers(const Elf64_Phdr& segment) {
    return segment.p_type == PT_LOAD && (segment.p_flags & (PF_R | PF_W)) == PF_R;
  }
  static constexpr std::size_t bytes_of(const Elf64_Phdr& segment) {
    return segment.p_filesz < segment.p_memsz ? segment.p_filesz : segment.p_memsz;
  }

  // One segment, in the order of the program headers. `address` is as the file says it.
  void add(std::uint64_t address, const std::uint8_t* contents, std::size_t bytes) {
    step(address);
    step(bytes);
    std::uint64_t word = 0;
    for (; bytes >= sizeof word; bytes -= sizeof word, contents += sizeof word) {
      __builtin_memcpy(&word, contents, sizeof word);
      step(word);
    }
    word = 0;
    for (std::size_t n = 0; n < bytes; ++n) word |= std::uint64_t{contents[n]} << (8 * n);
    step(word);
  }

  struct Text {
    char characters[41];  // zero-terminated
  };
  Text text() const {
    Text out{"content-"};
    for (unsigned n = 0; n < 32; ++n) {
      out.characters[8 + n] = "0123456789abcdef"[(n < 16 ? first_ : second_) >> (60 - n % 16 * 4) & 15];
    }
    return out;
  }

 private:
  void step(std::uint64_t word) {
    first_ = module_checksum_step(first_, word);
    second_ = (second_ ^ (word << 32 | word >> 32)) * 0xc2b2ae3d27d4eb4fu;
    second_ ^= second_ >> 31;
  }

  std::uint64_t first_ = 0;
  std::uint64_t second_ = 0;
};

}  // namespace penumbra
