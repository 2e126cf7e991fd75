// The decoder of faulting operands against the processor: each instruction runs with a non-canonical address in its
// operand, the processor refuses it, and the handler asks the decoder which address that was. Nothing is decoded
// twice by the same mind.
#include "runtime/signals/operand.h"

#include <gtest/gtest.h>

#include <setjmp.h>
#include <signal.h>

namespace penumbra::signals {
namespace {

constexpr std::uintptr_t kBad = 0x0123456789ab0000;

sigjmp_buf g_back;
Operand g_operand;

void on_fault(int, siginfo_t*, void* context) {
  g_operand = non_canonical_operand(*static_cast<const ucontext_t*>(context));
  siglongjmp(g_back, 1);
}

class OperandTest : public testing::Test {
 protected:
  OperandTest() {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &old_segv_);
    sigaction(SIGBUS, &action, &old_bus_);  // non-canonical rsp- and rbp-based operands raise #SS
  }
  ~OperandTest() override {
    sigaction(SIGSEGV, &old_segv_, nullptr);
    sigaction(SIGBUS, &old_bus_, nullptr);
  }

 private:
  struct sigaction old_segv_;
  struct sigaction old_bus_;
};

// Runs one instruction with rax = kBad, rcx = 0x10, rsi = rdi = kBad + 0x1000, r12 = kBad + 0x2000, r13 = kBad + 0x3000.
#define EXPECT_OPERAND(instruction, expected, write)                                               \
  do {                                                                                             \
    g_operand = Operand{};                                                                         \
    if (sigsetjmp(g_back, 1) == 0) {                                                               \
      asm volatile("mov %1, %%r12\n\tlea 0x1000(%%r12), %%r13\n\t" instruction                     \
                   :                                                                               \
                   : "a"(kBad), "r"(kBad + 0x2000), "c"(std::uintptr_t{0x10}), "S"(kBad + 0x1000), \
                     "D"(kBad + 0x1000)                                                            \
                   : "r12", "r13", "rdx", "xmm0", "xmm1", "memory", "cc");                         \
      FAIL() << instruction << " did not fault";                                                   \
    }                                                                                              \
    EXPECT_EQ(g_operand.kind, OperandKind::kNonCanonical) << instruction;                          \
    EXPECT_EQ(g_operand.address.value, expected) << instruction;                                   \
    EXPECT_EQ(g_operand.is_write, write) << instruction;                                           \
  } while (false)

TEST_F(OperandTest, LoadsAndStoresOfEverySize) {
  EXPECT_OPERAND("movb (%%rax), %%dl", kBad, false);
  EXPECT_OPERAND("movw %%dx, 2(%%rax)", kBad + 2, true);
  EXPECT_OPERAND("movl 0x12345(%%rax), %%edx", kBad + 0x12345, false);
  EXPECT_OPERAND("movq %%rdx, -8(%%rax)", kBad - 8, true);
  EXPECT_OPERAND("movzbl 5(%%rax), %%edx", kBad + 5, false);
  EXPECT_OPERAND("movslq (%%rax), %%rdx", kBad, false);
  EXPECT_OPERAND("movl $7, 4(%%rax)", kBad + 4, true);
}

TEST_F(OperandTest, IndexScaleAndExtendedRegisters) {
  EXPECT_OPERAND("movl 4(%%rax,%%rcx,4), %%edx", kBad + 4 + 0x40, false);
  EXPECT_OPERAND("movl (%%r12), %%edx", kBad + 0x2000, false);
  EXPECT_OPERAND("movl (%%r13,%%rcx,8), %%edx", kBad + 0x3000 + 0x80, false);
  EXPECT_OPERAND("movl 0x10(,%%rax,1), %%edx", kBad + 0x10, false);
}

TEST_F(OperandTest, ReadModifyWriteAndComparisons) {
  EXPECT_OPERAND("addl $1, (%%rax)", kBad, true);
  EXPECT_OPERAND("cmpl $1, (%%rax)", kBad, false);
  EXPECT_OPERAND("addl %%edx, (%%rax)", kBad, true);
  EXPECT_OPERAND("addl (%%rax), %%edx", kBad, false);
  EXPECT_OPERAND("cmpl %%edx, (%%rax)", kBad, false);
  EXPECT_OPERAND("incl (%%rax)", kBad, true);
  EXPECT_OPERAND("notl (%%rax)", kBad, true);
  EXPECT_OPERAND("lock xaddl %%edx, (%%rax)", kBad, true);
  EXPECT_OPERAND("lock cmpxchgl %%edx, (%%rdi)", kBad + 0x1000, true);
  EXPECT_OPERAND("sete (%%rax)", kBad, true);
  EXPECT_OPERAND("testb $1, (%%rax)", kBad, false);
}

TEST_F(OperandTest, StringInstructions) {
  EXPECT_OPERAND("movsb", kBad + 0x1000, false);
  EXPECT_OPERAND("rep stosb", kBad + 0x1000, true);
  EXPECT_OPERAND("lodsq", kBad + 0x1000, false);
  EXPECT_OPERAND("scasb", kBad + 0x1000, false);
}

TEST_F(OperandTest, Vectors) {
  EXPECT_OPERAND("movups (%%rax), %%xmm0", kBad, false);
  EXPECT_OPERAND("movups %%xmm0, 16(%%rax)", kBad + 16, true);
  EXPECT_OPERAND("movdqu %%xmm0, (%%rax)", kBad, true);
  EXPECT_OPERAND("movd %%xmm0, (%%rax)", kBad, true);
  EXPECT_OPERAND("movq (%%rax), %%xmm0", kBad, false);
  if (__builtin_cpu_supports("avx2")) {
    EXPECT_OPERAND("vmovdqu (%%r12), %%ymm0", kBad + 0x2000, false);
    EXPECT_OPERAND("vmovdqu %%ymm0, 32(%%rax,%%rcx,2)", kBad + 32 + 0x20, true);
    EXPECT_OPERAND("vpbroadcastb (%%rax), %%ymm0", kBad, false);
  }
}

TEST_F(OperandTest, CallsAndJumpsToWhereNoCodeCanBe) {
  EXPECT_OPERAND("call *(%%rax)", kBad, false);
  EXPECT_OPERAND("jmp *(%%r12)", kBad + 0x2000, false);
}

TEST_F(OperandTest, APrivilegedInstructionTouchesNoMemory) {
  g_operand = Operand{};
  if (sigsetjmp(g_back, 1) == 0) asm volatile("hlt");
  EXPECT_EQ(g_operand.kind, OperandKind::kNone);
}

TEST_F(OperandTest, AnUnalignedVectorIsNoMemoryError) {
  alignas(16) char bytes[32] = {};
  g_operand = Operand{};
  if (sigsetjmp(g_back, 1) == 0) asm volatile("movaps (%0), %%xmm0" : : "r"(bytes + 1) : "xmm0", "memory");
  EXPECT_EQ(g_operand.kind, OperandKind::kNone);
}

bool load_nothing(AppAddr, std::uintptr_t&) {
  return false;
}

TEST(Operand, WhatCannotBeWorkedOutIsUnknown) {
  const greg_t registers[NGREG] = {};
  const std::uint8_t fs_relative[] = {0x64, 0x8b, 0x00};    // mov eax, fs:[rax]
  const std::uint8_t short_address[] = {0x67, 0x8b, 0x00};  // mov eax, [eax]
  const std::uint8_t cut[] = {0x48, 0x8b};
  EXPECT_EQ(decode_operand(fs_relative, sizeof fs_relative, registers, load_nothing).kind, OperandKind::kUnknown);
  EXPECT_EQ(decode_operand(short_address, sizeof short_address, registers, load_nothing).kind, OperandKind::kUnknown);
  EXPECT_EQ(decode_operand(cut, sizeof cut, registers, load_nothing).kind, OperandKind::kUnknown);
}

}  // namespace
}  // namespace penumbra::signals
