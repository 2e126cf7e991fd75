// Our own reading of the encoding, against Zydis over real code and against hand-made bytes.
#include "instrument/rewrite/layout.h"

#include <gtest/gtest.h>
#include <Zydis/Zydis.h>

#include "tests/rewrite/corpus.h"

namespace penumbra::rewrite {
namespace {

std::optional<Layout> layout(std::initializer_list<std::uint8_t> bytes) {
  return read_layout(std::span(bytes.begin(), bytes.size()));
}

TEST(Layout, AgreesWithZydisOnEveryInstructionOfRealCode) {
  ZydisDecoder zydis;
  ZydisDecoderInit(&zydis, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  std::size_t seen = 0;
  std::size_t refused = 0;
  for (const CodeSection& section : small_corpus()) {
    ZydisDecodedInstruction z;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    sweep(
        section,
        [&](std::span<const std::uint8_t> rest) -> std::size_t {
          return ZYAN_SUCCESS(ZydisDecoderDecodeFull(&zydis, rest.data(), rest.size(), &z, operands)) ? z.length : 0;
        },
        [&](std::span<const std::uint8_t> rest, std::uint64_t address) {
          ++seen;
          const std::optional<Layout> ours = read_layout(rest);
          if (!ours) {  // refusing is safe; being wrong is not
            ++refused;
            return;
          }
          ASSERT_EQ(ours->length, z.length) << section.module << " at " << std::hex << address;
          const bool is_moffs = z.opcode_map == ZYDIS_OPCODE_MAP_DEFAULT && z.opcode >= 0xa0 && z.opcode <= 0xa3;
          if (is_moffs) return;  // its address is a displacement for Zydis and an immediate here
          ASSERT_EQ(ours->displacement_bytes, z.raw.disp.size / 8) << section.module << " at " << std::hex << address;
          if (ours->displacement_bytes != 0) {
            ASSERT_EQ(ours->displacement_offset, z.raw.disp.offset);
          }
          if (z.raw.imm[0].size != 0) {
            ASSERT_EQ(ours->immediate_offset, z.raw.imm[0].offset);
          }
        });
  }
  EXPECT_GT(seen, 1'000'000u);
  EXPECT_LT(refused * 1000, seen) << "data among libcrypto's code is refused, code is not";
}

TEST(Layout, TruncatedInstructionHasNoLayout) {
  EXPECT_FALSE(layout({0x48}));
  EXPECT_FALSE(layout({0xe8, 1, 2, 3}));
  EXPECT_FALSE(layout({0x8b, 0x84, 0x24, 0, 0, 0}));
  EXPECT_FALSE(layout({}));
}

TEST(Layout, SixteenBytesAreTooMany) {
  EXPECT_FALSE(
      layout({0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x90}));
}

TEST(Layout, ImmediateOfTestDependsOnTheModRm) {
  EXPECT_EQ(layout({0xf6, 0xc0, 1})->immediate_bytes, 1);  // test al, 1
  EXPECT_EQ(layout({0xf6, 0xd0})->immediate_bytes, 0);     // not al
  EXPECT_EQ(layout({0xf7, 0xc0, 1, 2, 3, 4})->immediate_bytes, 4);
  EXPECT_EQ(layout({0x66, 0xf7, 0xc0, 1, 2})->immediate_bytes, 2);
}

TEST(Layout, RefusesWhatProcessorsDisagreeOn) {
  EXPECT_FALSE(layout({0x66, 0xe9, 1, 2, 3, 4, 5}));          // jmp with an operand-size prefix
  EXPECT_TRUE(layout({0x66, 0x66, 0x48, 0xe8, 1, 2, 3, 4}));  // the padded call of __tls_get_addr
  EXPECT_FALSE(layout({0x0f, 0x0f, 0xc0, 0x9e}));             // 3DNow!
  EXPECT_FALSE(layout({0x8f, 0xe9, 0x78, 0xe1, 0xc0}));       // XOP
}

TEST(Layout, FormKeyForgetsDisplacementAndImmediateOnly) {
  const std::uint8_t a[] = {0x48, 0xc7, 0x44, 0x24, 0x08, 1, 0, 0, 0};  // mov qword [rsp+8], 1
  const std::uint8_t b[] = {0x48, 0xc7, 0x44, 0x24, 0x10, 7, 0, 0, 0};  // mov qword [rsp+16], 7
  const std::uint8_t c[] = {0x48, 0xc7, 0x44, 0x25, 0x10, 7, 0, 0, 0};  // another base
  EXPECT_EQ(form_key(a, *read_layout(a)), form_key(b, *read_layout(b)));
  EXPECT_FALSE(form_key(a, *read_layout(a)) == form_key(c, *read_layout(c)));
}

}  // namespace
}  // namespace penumbra::rewrite
