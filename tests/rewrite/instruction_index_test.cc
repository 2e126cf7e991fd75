// The index against a plain search, for random instructions of 1 to 15 bytes with holes between them.
#include "instrument/rewrite/instruction_index.h"

#include <gtest/gtest.h>

#include <random>

namespace penumbra::rewrite {
namespace {

TEST(InstructionIndex, EveryPlaceHasTheInstructionThatBeginsThereOrNone) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const std::uint64_t text_bytes = 1 + random() % 2000;
    std::vector<Instruction> instructions;
    for (std::uint32_t at = random() % 70; at < text_bytes;
         at += 1 + random() % 15 + (random() % 50 == 0 ? 200 : 0)) {
      instructions.push_back({at, 0});
    }
    const InstructionIndex index(instructions, text_bytes);
    std::uint32_t next = 0;
    for (std::uint64_t at = 0; at < text_bytes; ++at) {
      const bool begins = next < instructions.size() && instructions[next].offset == at;
      ASSERT_EQ(index.at(at), begins ? next : ~std::uint32_t{0}) << "seed " << seed << " at " << at;
      next += begins;
    }
    EXPECT_EQ(next, instructions.size());
  }
}

}  // namespace
}  // namespace penumbra::rewrite
