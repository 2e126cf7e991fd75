// Liveness: its equations hold on real modules, hazards that broke a simpler analysis are understood, and nothing that
// a slower, independent method (following every path by hand) finds live is missed.
#include "instrument/rewrite/liveness.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <random>
#include <set>

#include "tests/rewrite/assemble.h"

namespace penumbra::rewrite {
namespace {

struct Analysed {
  explicit Analysed(const std::string& path) : image(path), program(image, decoder), liveness(program) {}

  std::uint64_t symbol(std::string_view name) const {
    for (const Symbol& s : image.symbols()) {
      if (s.name == name) return s.address;
    }
    ADD_FAILURE() << "no symbol " << name;
    return 0;
  }

  // Live before the instruction at a label.
  RegSet live_at(std::string_view name) const {
    const std::uint32_t i = program.instruction_at(symbol(name));
    const std::uint32_t b = program.block_of(i);
    return liveness.before_each(b)[i - program.blocks()[b].first];
  }

  Decoder decoder;
  ElfImage image;
  Program program;
  Liveness liveness;
};

TEST(Liveness, EquationsHoldOnRealModules) {
  for (const char* path :
       {"/usr/bin/perl", "/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"}) {
    if (access(path, R_OK) != 0) continue;
    const Analysed a(path);
    EXPECT_NO_THROW(a.liveness.validate()) << path;
  }
}

TEST(Liveness, AReturnValueInAnOddRegisterIsLiveInTheCallee) {
  // libcrypto's assembly: the helper returns in r9 and the carry flag; by the ABI both would be dead at its return.
  const Assembled module(
      asm_function("helper", "mov r9, [rdi]\nadd r9, 1\nhelper_end: ret") +
      asm_function("outer", "sub rsp, 8\ncall helper\nadc r9, 0\nmov rax, r9\nadd rsp, 8\nret", true));
  const Analysed a(module.path());
  EXPECT_NE(a.live_at("helper_end") & reg(kR9), 0u);
  EXPECT_NE(a.live_at("helper_end") & kCarry, 0u);
  EXPECT_EQ(a.live_at("helper_end") & reg(kR11), 0u);
}

TEST(Liveness, ARegisterThatALocalCalleeLeavesAloneIsLiveThroughIt) {
  // gcc -fipa-ra: the caller keeps a value in rcx across the call, since the callee never touches it.
  const Assembled module(
      asm_function("callee", "callee_mid: mov eax, [rdi]\nret") +
      asm_function("caller", "sub rsp, 8\nmov ecx, [rsi]\ncall callee\nadd eax, ecx\nadd rsp, 8\nret", true));
  const Analysed a(module.path());
  EXPECT_NE(a.live_at("callee_mid") & reg(kRcx), 0u);
}

TEST(Liveness, AFunctionThatIsNotUnderstoodMayKeepARegisterThroughALocalCallee) {
  // libc's malloc jumps over lock prefixes, into the middle of an instruction; behind that jump stands the call.
  for (const char* doubtful :
       {"je .Lover\n.byte 0xf0\n.Lover: inc dword ptr [rdi]\n", "xbegin .Lend\nxend\n.Lend:"}) {
    const Assembled module(asm_function("callee", "callee_mid: mov eax, [rdi]\nret") +
                           asm_function("caller",
                                        "sub rsp, 8\nmov ecx, [rsi]\n" + std::string(doubtful) +
                                            "\ncall callee\nadd eax, ecx\nadd rsp, 8\nret",
                                        true) +
                           asm_function("other", "sub rsp, 8\ncall callee\nmov ecx, 1\nadd rsp, 8\nret", true));
    const Analysed a(module.path());
    ASSERT_NE(a.program.functions()[a.program.function_at(a.symbol("caller"))].doubt, Doubt::kNone) << doubtful;
    EXPECT_NE(a.live_at("callee_mid") & reg(kRcx), 0u) << doubtful;
  }
}

TEST(Liveness, WhatACalleeOverwritesIsDeadBeforeTheCall) {
  const Assembled module(
      asm_function("callee", "mov ecx, 1\nmov eax, ecx\nret") +
      asm_function("caller", "sub rsp, 8\nbefore: call callee\nadd eax, ecx\nadd rsp, 8\nret", true));
  const Analysed a(module.path());
  EXPECT_EQ(a.live_at("before") & reg(kRcx), 0u);
  EXPECT_EQ(a.live_at("before") & kArithmeticFlags, 0u);
}

TEST(Liveness, ATailCalledFunctionReturnsToTheCallersOfItsCaller) {
  const Assembled module(
      asm_function("target", "target_mid: mov eax, 1\nret") + asm_function("middle", "jmp target") +
      asm_function("outer", "sub rsp, 8\nmov r10d, 3\ncall middle\nadd eax, r10d\nadd rsp, 8\nret", true));
  const Analysed a(module.path());
  EXPECT_NE(a.live_at("target_mid") & reg(kR10), 0u);
}

TEST(Liveness, AnUnresolvedJumpNeedsEverything) {
  const Assembled module(asm_function("f", "mov rax, [rdi]\nthere: jmp rax", true));
  const Analysed a(module.path());
  EXPECT_EQ(a.live_at("there") & kEverything, kEverything);
}

TEST(Liveness, AFunctionPointerTableIsNoSwitch) {
  // The arguments of the functions in the table must not look dead (cc1 broke on this once).
  const Assembled module(asm_function("a1", "mov eax, edx\nret") + asm_function("a2", "mov eax, r8d\nret") +
                         asm_function("f", "lea rcx, table[rip]\nmov eax, edi\ndispatch: jmp [rcx+rax*8]", true) +
                         ".section .data.rel.ro,\"aw\"\n.align 8\ntable: .quad a1, a2\n.text\n");
  const Analysed a(module.path());
  EXPECT_NE(a.live_at("dispatch") & reg(kRdx), 0u);
  EXPECT_NE(a.live_at("dispatch") & reg(kR8), 0u);
}

TEST(Liveness, ASwitchNeedsOnlyWhatItsCasesNeed) {
  const Assembled module(
      asm_function("f",
                   "lea rcx, table[rip]\nmovsxd rax, dword ptr [rcx+rdi*4]\nadd rax, rcx\ndispatch: jmp rax\n"
                   "case0: mov eax, esi\nret\ncase1: mov eax, 7\nret",
                   true) +
      ".section .rodata\n.align 4\ntable: .long case0-table, case1-table\n.text\n");
  const Analysed a(module.path());
  EXPECT_EQ(a.program.tables().size(), 1u);
  EXPECT_NE(a.live_at("dispatch") & reg(kRsi), 0u);
  EXPECT_EQ(a.live_at("dispatch") & (reg(kR8) | reg(kR9) | kArithmeticFlags), 0u);
}

TEST(Liveness, ALandingPadKeepsItsRegistersAliveThroughCalls) {
  // rbx is needed only where the exception lands: the code behind the call overwrites it at once.
  const Assembled module(
      asm_function("f",
                   ".cfi_personality 0x9b, DW.ref\n.cfi_lsda 0x1b, lsda\npush rbx\nmov rbx, rdi\n"
                   "call_begin: call g@PLT\ncall_end: xor ebx, ebx\npop rbx\nret\npad: mov rdi, rbx\npop rbx\n"
                   "jmp h@PLT",
                   true) +
      ".section .gcc_except_table,\"a\"\nlsda: .byte 0xff, 0xff, 1\n.uleb128 lsda_end-lsda_begin\n"
      "lsda_begin: .uleb128 call_begin-f\n.uleb128 call_end-call_begin\n.uleb128 pad-f\n.uleb128 0\nlsda_end:\n"
      ".data\nDW.ref: .quad 0\n.text\n");
  const Analysed a(module.path());
  EXPECT_NE(a.live_at("call_begin") & reg(kRbx), 0u);
}

// Every path from an instruction, up to a bound, by itself: a register is live if on some path it is read before it is
// overwritten. Follows edges and returns to the next instruction behind calls of unknown functions only.
bool is_read_on_some_path(const Analysed& a, std::uint32_t start, RegSet wanted) {
  std::set<std::uint32_t> seen;
  std::deque<std::uint32_t> waits{start};
  while (!waits.empty() && seen.size() < 400) {
    std::uint32_t i = waits.front();
    waits.pop_front();
    if (!seen.insert(i).second) continue;
    const Form& form = a.program.form(i);
    if ((form.reads & wanted) != 0) return true;
    if ((kills(form, a.program.bytes(i)) & wanted) != 0) continue;
    const Block& block = a.program.blocks()[a.program.block_of(i)];
    if (i + 1 < block.first + block.count) {
      waits.push_back(i + 1);
      continue;
    }
    if (form.flow == Flow::kCall || form.flow == Flow::kIndirectCall) continue;
    for (const std::uint32_t to : a.program.successors(block)) waits.push_back(a.program.blocks()[to].first);
  }
  return false;
}

TEST(Liveness, NothingThatSomePathReadsIsCalledDead) {
  const char* path = "/usr/bin/perl";
  if (access(path, R_OK) != 0) GTEST_SKIP() << "no perl here";
  const Analysed a(path);
  std::mt19937 random(3);
  std::size_t dead = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto b = static_cast<std::uint32_t>(random() % a.program.blocks().size());
    const std::vector<RegSet> live = a.liveness.before_each(b);
    const auto k = static_cast<std::uint32_t>(random() % live.size());
    for (unsigned bit = 0; bit < 22; ++bit) {
      const RegSet one = 1u << bit;
      if ((live[k] & one) != 0) continue;
      ++dead;
      ASSERT_FALSE(is_read_on_some_path(a, a.program.blocks()[b].first + k, one))
          << "bit " << bit << " before " << std::hex << a.program.address(a.program.blocks()[b].first + k);
    }
  }
  EXPECT_GT(dead, 10'000u);
}

}  // namespace
}  // namespace penumbra::rewrite
