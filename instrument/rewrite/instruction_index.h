// Which instruction begins at a place of the text: a bit for each byte, and for each word of bits how many were set before.
// A tenth of the memory that a number for each byte would take, and small enough for the caches.
//
// zone: hosted
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "instrument/rewrite/instruction.h"

namespace penumbra::rewrite {

class InstructionIndex {
 public:
  InstructionIndex() = default;

  // `instructions` ascend by offset and lie below text_bytes.
  InstructionIndex(std::span<const Instruction> instructions, std::uint64_t text_bytes)
      : words_(text_bytes / kBits + 1) {
    for (const Instruction& instruction : instructions) {
      words_[instruction.offset / kBits].begins |= std::uint64_t{1} << instruction.offset % kBits;
    }
    std::uint32_t before = 0;
    for (Word& word : words_) {
      word.before = before;
      before += static_cast<std::uint32_t>(std::popcount(word.begins));
    }
  }

  // Its number, ~0 where none begins. The offset lies below text_bytes.
  std::uint32_t at(std::uint64_t offset) const {
    const Word& word = words_[offset / kBits];
    const std::uint64_t bit = std::uint64_t{1} << offset % kBits;
    if ((word.begins & bit) == 0) return ~std::uint32_t{0};
    return word.before + static_cast<std::uint32_t>(std::popcount(word.begins & (bit - 1)));
  }

 private:
  static constexpr std::uint64_t kBits = 64;

  struct [[gnu::packed]] Word {
    std::uint64_t begins = 0;
    std::uint32_t before = 0;
  };

  std::vector<Word> words_;
};

}  // namespace penumbra::rewrite
