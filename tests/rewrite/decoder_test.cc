// The decoder's rules one by one, the form table against fresh decoding over real code, and how little is doubted.
#include "instrument/rewrite/decoder.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/rewrite/corpus.h"

namespace penumbra::rewrite {
namespace {

using Bytes = std::vector<std::uint8_t>;

class DecoderTest : public ::testing::Test {
 protected:
  const Form& of(const Bytes& bytes) { return decoder_.form(decoder_.decode(bytes)); }

  Decoder decoder_;
};

TEST_F(DecoderTest, TheFormTableSaysWhatFreshDecodingSays) {
  std::size_t seen = 0;
  for (const CodeSection& section : small_corpus()) {
    sweep(
        section, [&](std::span<const std::uint8_t> rest) { return decoder_.form(decoder_.decode(rest)).length; },
        [&](std::span<const std::uint8_t> rest, std::uint64_t address) {
          if (++seen % 37 != 0) return;  // a stride that is no multiple of anything code is aligned to
          const Form table = decoder_.form(decoder_.decode(rest));
          const Form fresh = decoder_.decode_afresh(rest);
          ASSERT_EQ(table.doubt, fresh.doubt) << section.module << " at " << std::hex << address;
          ASSERT_EQ(table.length, fresh.length);
          ASSERT_EQ(table.flow, fresh.flow);
          ASSERT_EQ(table.reads, fresh.reads) << section.module << " at " << std::hex << address;
          ASSERT_EQ(table.touches, fresh.touches);
          ASSERT_EQ(table.operand_count, fresh.operand_count);
          for (unsigned i = 0; i < table.operand_count; ++i) {
            ASSERT_EQ(table.operands[i].base, fresh.operands[i].base);
            ASSERT_EQ(table.operands[i].index, fresh.operands[i].index);
            ASSERT_EQ(table.operands[i].size, fresh.operands[i].size);
            ASSERT_EQ(table.operands[i].is_write, fresh.operands[i].is_write);
          }
        });
  }
  EXPECT_GT(seen, 1'000'000u);
}

TEST_F(DecoderTest, AlmostNothingInRealCodeIsDoubted) {
  std::map<std::string, std::size_t> doubted;
  std::size_t seen = 0;
  std::size_t doubts = 0;
  for (const CodeSection& section : small_corpus()) {
    if (section.module.find("libcrypto") != std::string::npos) continue;  // tables stand among its code
    sweep(
        section, [&](std::span<const std::uint8_t> rest) { return decoder_.form(decoder_.decode(rest)).length; },
        [&](std::span<const std::uint8_t> rest, std::uint64_t) {
          const Form& form = decoder_.form(decoder_.decode(rest));
          ++seen;
          if (form.doubt == Doubt::kNone) return;
          ++doubts;
          ++doubted[std::string(decoder_.mnemonic(form)) + " doubt " + std::to_string(static_cast<int>(form.doubt))];
        });
  }
  std::string list;
  for (const auto& [what, count] : doubted) list += what + ": " + std::to_string(count) + "\n";
  EXPECT_LE(doubts * 50'000, seen) << list;
}

TEST_F(DecoderTest, R2InstructionsThatCapstoneDoesNotKnowAreBelievedWhenVectorEncoded) {
  EXPECT_EQ(of({0x62, 0xf2, 0x7d, 0x48, 0x78, 0x18}).doubt, Doubt::kNone);  // vpbroadcastb zmm3, byte ptr [rax]
  EXPECT_EQ(of({0xc4, 0xe1, 0xfb, 0x92, 0xcb}).doubt, Doubt::kNone);        // kmovq k1, rbx
  EXPECT_EQ(of({0xc4, 0xe1, 0xfb, 0x92, 0xcb}).reads, reg(kRbx));
  EXPECT_EQ(of({0xf3, 0x48, 0x0f, 0x1e, 0xc8}).doubt, Doubt::kNone);  // rdsspq rax
}

TEST_F(DecoderTest, R3LockedCompareExchangeReadsAndMayChangeRax) {
  const Form& form = of({0xf0, 0x0f, 0xb1, 0x17});  // lock cmpxchg [rdi], edx
  EXPECT_EQ(form.doubt, Doubt::kNone);
  EXPECT_NE(form.reads & reg(kRax), 0u);
  EXPECT_NE(form.reads & reg(kRdx), 0u);
  EXPECT_NE(form.touches & reg(kRax), 0u) << "Capstone 4.0.2 names no written register here";
  EXPECT_EQ(form.kills & reg(kRax), 0u);
  ASSERT_EQ(form.operand_count, 1);
  EXPECT_TRUE(form.operands[0].is_read && form.operands[0].is_write);
  EXPECT_EQ(form.operands[0].size, 4);
}

TEST_F(DecoderTest, R3RdpidWritesItsRegister) {
  const Form& form = of({0xf3, 0x0f, 0xc7, 0xf8});  // rdpid rax; rdseed for Capstone
  EXPECT_NE(form.touches & reg(kRax), 0u);
}

TEST_F(DecoderTest, R3ZeroIdiomsReadNothingAndOverwriteAll) {
  const Form& form = of({0x31, 0xc0});  // xor eax, eax
  EXPECT_EQ(form.reads, 0u);
  EXPECT_EQ(form.kills, reg(kRax) | kArithmeticFlags);
  EXPECT_NE(of({0x30, 0xc0}).reads & reg(kRax), 0u) << "xor al, al keeps the upper bytes";
}

TEST_F(DecoderTest, R4ConditionalChangesOverwriteNothing) {
  EXPECT_EQ(of({0xd3, 0xe0}).kills & kArithmeticFlags, 0u) << "shl eax, cl by 0 keeps the flags";
  EXPECT_NE(of({0xd3, 0xe0}).touches & kCarry, 0u);
  EXPECT_EQ(of({0x0f, 0xbc, 0xc1}).kills & reg(kRax), 0u) << "bsf eax, ecx of 0 keeps eax";
  EXPECT_EQ(of({0x0f, 0x44, 0xc1}).kills & reg(kRax), 0u) << "cmove";
  EXPECT_EQ(of({0xf3, 0xa6}).kills & kArithmeticFlags, 0u) << "repe cmpsb with rcx 0";
}

TEST_F(DecoderTest, R4ShiftByAnImmediateOfZeroLeavesTheFlags) {
  const Bytes by_3 = {0xc1, 0xe0, 3};
  const Bytes by_0 = {0xc1, 0xe0, 0};
  EXPECT_NE(kills(of(by_3), by_3) & kCarry, 0u);
  EXPECT_EQ(kills(of(by_0), by_0) & kArithmeticFlags, 0u);
}

TEST_F(DecoderTest, PartialWritesOverwriteNothing) {
  EXPECT_EQ(of({0x88, 0xc8}).kills, 0u);              // mov al, cl
  EXPECT_NE(of({0x88, 0xc8}).reads & reg(kRax), 0u);  // its other bytes live on
  EXPECT_EQ(of({0x89, 0xc8}).kills, reg(kRax));       // mov eax, ecx clears the upper half
  EXPECT_EQ(of({0x66, 0x89, 0xc8}).kills, 0u);        // mov ax, cx
  EXPECT_EQ(of({0x88, 0xe0}).touches, reg(kRax));     // mov al, ah: ah is rax, not rsp
}

TEST_F(DecoderTest, R5StoresThatCapstoneCallsReadsAreWrites) {
  for (const Bytes& bytes : {Bytes{0x0f, 0x11, 0x07},           // movups [rdi], xmm0
                             Bytes{0x66, 0x0f, 0x7f, 0x07},     // movdqa [rdi], xmm0
                             Bytes{0x0f, 0x92, 0x07},           // setb [rdi]
                             Bytes{0xdd, 0x1f},                 // fstp qword [rdi]
                             Bytes{0xc5, 0xfe, 0x7f, 0x07}}) {  // vmovdqu [rdi], ymm0
    const Form& form = of(bytes);
    ASSERT_EQ(form.operand_count, 1);
    EXPECT_TRUE(form.operands[0].is_write) << decoder_.mnemonic(form);
    EXPECT_FALSE(form.operands[0].is_read) << decoder_.mnemonic(form);
  }
  EXPECT_FALSE(of({0xf7, 0x07, 1, 0, 0, 0}).operands[0].is_write) << "test [rdi], imm";
}

TEST_F(DecoderTest, R6SizesAreWhatTheProcessorTouches) {
  EXPECT_EQ(of({0x66, 0x0f, 0x2f, 0x17}).operands[0].size, 8);   // comisd xmm2, [rdi]
  EXPECT_EQ(of({0x0f, 0x62, 0x27}).operands[0].size, 4);         // punpckldq mm4, [rdi]
  EXPECT_EQ(of({0xdd, 0x3f}).operands[0].size, 2);               // fnstsw [rdi]
  EXPECT_EQ(of({0x0f, 0xae, 0x07}).operands[0].size, 512);       // fxsave [rdi]
  EXPECT_EQ(of({0x48, 0x0f, 0xc7, 0x0f}).operands[0].size, 16);  // cmpxchg16b [rdi]
  EXPECT_EQ(of({0xdb, 0x2f}).operands[0].size, 10);              // fld tbyte [rdi]
}

TEST_F(DecoderTest, R7AnEvexIndexIsAGeneralRegisterUnlessItGathers) {
  // vpxorq ymm17, ymm17, [rdi+rdx-0x40]; Capstone names xmm2.
  const Form& form = of({0x62, 0xe1, 0xf5, 0x20, 0xef, 0x4c, 0x17, 0xfe});
  EXPECT_EQ(form.doubt, Doubt::kNone);
  EXPECT_EQ(form.operands[0].index, kRdx);
  EXPECT_EQ(form.displacement_scale, 32);
}

TEST_F(DecoderTest, R10TheIndexOfAScatterIsAVector) {
  // vpscatterdd [rbx+zmm5*4]{k2}, zmm8; Capstone names rbp.
  const Form& form = of({0x62, 0x72, 0x7d, 0x4a, 0xa0, 0x04, 0xab});
  EXPECT_EQ(form.doubt, Doubt::kNone);
  EXPECT_EQ(form.operands[0].index, kVector);
  EXPECT_EQ(form.operands[0].base, kRbx);
}

TEST_F(DecoderTest, R8StringInstructionsNameBothSides) {
  const Form& movs = of({0xf3, 0x48, 0xa5});  // rep movsq
  ASSERT_EQ(movs.operand_count, 2);
  EXPECT_TRUE(movs.has_rep);
  EXPECT_EQ(movs.operands[0].shape, AccessShape::kString);
  EXPECT_EQ(movs.operands[0].base, kRdi);
  EXPECT_TRUE(movs.operands[0].is_write);
  EXPECT_EQ(movs.operands[1].base, kRsi);
  EXPECT_EQ(movs.operands[0].size, 8);
  EXPECT_NE(movs.reads & reg(kRcx), 0u) << "rcx was missed behind two memory operands once";
  EXPECT_NE(movs.reads & kDirection, 0u);
}

TEST_F(DecoderTest, SpecialShapesAreTold) {
  EXPECT_EQ(of({0x0f, 0xab, 0x07}).operands[0].shape, AccessShape::kBitString);                   // bts [rdi], eax
  EXPECT_EQ(of({0x0f, 0xba, 0x2f, 3}).operands[0].shape, AccessShape::kPlain);                    // bts [rdi], 3
  EXPECT_EQ(of({0xd7}).operands[0].shape, AccessShape::kTable);                                   // xlat
  EXPECT_EQ(of({0x66, 0x0f, 0xf7, 0xc1}).operands[0].shape, AccessShape::kMasked);                // maskmovdqu
  EXPECT_EQ(of({0xc4, 0xe2, 0x69, 0x92, 0x04, 0x0f}).operands[0].shape, AccessShape::kGathered);  // vgatherdps
  EXPECT_EQ(of({0x62, 0xf1, 0xfe, 0x49, 0x6f, 0x07}).operands[0].shape, AccessShape::kMasked);  // vmovdqu64 zmm0{k1}
  EXPECT_EQ(of({0x62, 0xf1, 0xfd, 0x58, 0x58, 0x07}).operands[0].size, 8) << "a broadcast reads one element";
  EXPECT_EQ(of({0x0f, 0xae, 0x27}).operands[0].shape, AccessShape::kState);  // xsave
}

TEST_F(DecoderTest, MasksAndGathersNameWhatDecides) {
  const auto choice = [&](const Bytes& bytes) { return of(bytes).operands[0].choice; };
  const ElementChoice load = choice({0x62, 0xf1, 0xfe, 0x49, 0x6f, 0x07});  // vmovdqu64 zmm0{k1}, [rdi]
  EXPECT_EQ(load.decider, ElementChoice::kMaskRegister);
  EXPECT_EQ(load.decider_register, 1);
  EXPECT_EQ(load.element_bytes, 8);
  EXPECT_EQ(load.count, 8);
  const ElementChoice bytes = choice({0x62, 0xf1, 0x7f, 0x4a, 0x7f, 0x07});  // vmovdqu8 [rdi]{k2}, zmm0
  EXPECT_EQ(bytes.element_bytes, 1);
  EXPECT_EQ(bytes.count, 64);
  const ElementChoice gather = choice({0xc4, 0xe2, 0x69, 0x92, 0x04, 0x0f});  // vgatherdps xmm0, [rdi+xmm1], xmm2
  EXPECT_EQ(gather.decider, ElementChoice::kVectorSigns);
  EXPECT_EQ(gather.decider_register, 2);
  EXPECT_EQ(gather.index_register, 1);
  EXPECT_EQ(gather.count, 4);
  EXPECT_FALSE(gather.has_wide_index);
  const ElementChoice packed = choice({0x62, 0xf2, 0x7d, 0x4b, 0x8b, 0x07});  // vpcompressd [rdi]{k3}, zmm0
  EXPECT_EQ(packed.place, ElementChoice::kPacked);
  EXPECT_EQ(packed.decider_register, 3);
  EXPECT_EQ(packed.element_bytes, 4);
  const ElementChoice store = choice({0x66, 0x0f, 0xf7, 0xc1});  // maskmovdqu xmm0, xmm1
  EXPECT_EQ(store.decider, ElementChoice::kVectorSigns);
  EXPECT_EQ(store.decider_register, 1);
  EXPECT_EQ(store.count, 16);
  const auto mmx = choice({0x0f, 0xf7, 0xc1});  // maskmovq mm0, mm1
  EXPECT_EQ(mmx.decider, ElementChoice::kMmxSigns);
  EXPECT_EQ(mmx.count, 8);
  for (const ElementChoice& c : {load, bytes, gather, packed, store, mmx}) {
    const ElementChoice again = ElementChoice::unpack(c.pack());
    EXPECT_EQ(again.pack(), c.pack());
    EXPECT_EQ(again.count, c.count);
    EXPECT_EQ(again.element_bytes, c.element_bytes);
    EXPECT_EQ(again.index_register, c.index_register);
  }
}

TEST_F(DecoderTest, R11LoadsWithoutFaultSuppressionReadTheirWholeOperand) {
  const Form& unpack = of({0x62, 0xf1, 0x7d, 0x49, 0x62, 0x07});  // vpunpckldq zmm0{k1}, zmm0, [rdi]
  EXPECT_EQ(unpack.operands[0].shape, AccessShape::kPlain);
  EXPECT_EQ(unpack.operands[0].size, 64);
}

TEST_F(DecoderTest, RareStoresNameAllTheirMemory) {
  const Form& pair = of({0xf0, 0x48, 0x0f, 0xc7, 0x0f});  // lock cmpxchg16b [rdi]
  EXPECT_EQ(pair.doubt, Doubt::kNone);
  EXPECT_TRUE(pair.operands[0].is_read && pair.operands[0].is_write);
  const Form& direct = of({0x0f, 0x38, 0xf9, 0x07});      // movdiri [rdi], eax
  const Form& line = of({0x66, 0x0f, 0x38, 0xf8, 0x06});  // movdir64b rax, [rsi]
  EXPECT_EQ(direct.doubt, Doubt::kNone);
  EXPECT_TRUE(direct.operands[0].is_write);
  EXPECT_EQ(direct.operands[0].size, 4);
  EXPECT_EQ(line.doubt, Doubt::kNone);
  ASSERT_EQ(line.operand_count, 2);
  for (const MemoryOperand& m : line.operands) {
    EXPECT_EQ(m.size, 64);
    EXPECT_EQ(m.base, m.is_write ? kRax : kRsi);
  }
  EXPECT_NE(of({0xf2, 0x0f, 0x38, 0xf8, 0x06}).doubt, Doubt::kNone) << "enqcmd: its function stays as it is";
}

TEST_F(DecoderTest, NamingAnAddressIsNoAccess) {
  EXPECT_EQ(of({0x48, 0x8d, 0x07}).operand_count, 0);           // lea
  EXPECT_EQ(of({0x0f, 0x18, 0x0f}).operand_count, 0);           // prefetcht0
  EXPECT_EQ(of({0x0f, 0x1f, 0x44, 0x00, 0}).operand_count, 0);  // nop [rax+rax]
  EXPECT_EQ(of({0x0f, 0xae, 0x3f}).operand_count, 0);           // clflush
}

TEST_F(DecoderTest, ControlFlowAndTargets) {
  const Bytes jne = {0x75, 0x10};
  EXPECT_EQ(of(jne).flow, Flow::kConditionalJump);
  EXPECT_EQ(of(jne).condition, 5);
  EXPECT_EQ(branch_target(of(jne), jne, 0x1000), 0x1012u);
  const Bytes far_jne = {0x0f, 0x85, 0xf0, 0xff, 0xff, 0xff};
  EXPECT_EQ(of(far_jne).condition, 5);
  EXPECT_EQ(branch_target(of(far_jne), far_jne, 0x1000), 0xff6u);
  EXPECT_EQ(of({0xe3, 0}).flow, Flow::kCountedJump);
  EXPECT_EQ(of({0xff, 0xe0}).flow, Flow::kIndirectJump);
  EXPECT_EQ(of({0x3e, 0xff, 0xe0}).flow, Flow::kIndirectJump);  // notrack
  EXPECT_EQ(of({0xff, 0x17}).flow, Flow::kIndirectCall);
  EXPECT_EQ(of({0xf2, 0xc3}).flow, Flow::kReturn);
  EXPECT_EQ(of({0x0f, 0x0b}).flow, Flow::kTrap);
  EXPECT_EQ(of({0x0f, 0x05}).flow, Flow::kSystemCall);
  EXPECT_EQ(of({0x0f, 0x05}).reads, kEverything);
  EXPECT_EQ(of({0xff, 0x2f}).doubt, Doubt::kUnsupported);              // jmp far
  EXPECT_EQ(of({0xc7, 0xf8, 0, 0, 0, 0}).doubt, Doubt::kUnsupported);  // xbegin
}

TEST_F(DecoderTest, RipRelativeOperandsNameTheirTarget) {
  const Bytes lea = {0x48, 0x8d, 0x05, 0x10, 0, 0, 0};
  EXPECT_TRUE(of(lea).is_wide_address);
  EXPECT_EQ(rip_relative_target(of(lea), lea, 0x1000), 0x1017u);
}

TEST_F(DecoderTest, BytesThatAreNoInstructionAreDoubted) {
  EXPECT_EQ(of({0x06}).doubt, Doubt::kUndecodable);
  EXPECT_EQ(of({0x06}).length, 0);
  EXPECT_EQ(of({0x48}).length, 0);
}

}  // namespace
}  // namespace penumbra::rewrite
