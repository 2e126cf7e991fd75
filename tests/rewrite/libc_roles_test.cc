// Which functions of libc play a part of their own, on the libc of this system and on small made-up ones: the variants that its
// resolvers name, its heap, what changes contexts, and the numbers of its system calls.
#include "instrument/rewrite/libc_roles.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "instrument/rewrite/relocator_x86_64.h"
#include "runtime/base/system_calls.h"
#include "tests/rewrite/assemble.h"

namespace penumbra::rewrite {
namespace {

constexpr const char* kLibc = "/lib/x86_64-linux-gnu/libc.so.6";

// A program with its roles, from a file that outlives it.
struct Analysed {
  Decoder decoder;
  ElfImage image;
  Program program;
  std::vector<LibcRole> roles;

  explicit Analysed(const std::string& path)
      : image(path), program(image, decoder), roles(find_libc_roles(program)) {}

  std::uint32_t function(const std::string& name) const {
    for (const Symbol& symbol : image.symbols()) {
      if (symbol.name == name) return program.function_at(symbol.address);
    }
    ADD_FAILURE() << "no function " << name;
    return 0;
  }
  LibcRole role(const std::string& name) const { return roles[function(name)]; }
  bool changes(const std::string& name) const {
    return changes_context(program, program.functions()[function(name)]);
  }
};

const std::string kStart = asm_function("__libc_start_main", "ret", true);
const std::string kResolver =
    asm_function("choose", "lea rax, fast[rip]\n test edi, edi\n jne 1f\n lea rax, slow[rip]\n1: ret");
const std::string kIfunc = ".globl strlen\n.type strlen, @gnu_indirect_function\n.set strlen, choose\n";

TEST(LibcRoles, VariantsAreWhatResolversNameAndWhatTheseJumpInto) {
  const Assembled module(kStart + kResolver + kIfunc + asm_function("fast", "xor eax, eax\n jmp tail") +
                         asm_function("slow", "mov eax, 1\n ret") + asm_function("tail", "mov eax, 2\n ret") +
                         asm_function("other", "call fast\n ret", true));
  const Analysed libc(module.path());
  EXPECT_EQ(libc.role("fast"), LibcRole::kStringVariant);
  EXPECT_EQ(libc.role("slow"), LibcRole::kStringVariant);
  EXPECT_EQ(libc.role("tail"), LibcRole::kStringVariant);
  EXPECT_EQ(libc.role("other"), LibcRole::kNone);
  EXPECT_EQ(libc.role("choose"), LibcRole::kNone);
}

TEST(LibcRoles, NoOtherLibraryHasAny) {
  const Assembled module(kResolver + kIfunc + asm_function("fast", "xor eax, eax\n ret") +
                         asm_function("slow", "ret") + asm_function("malloc", "ret", true));
  const Analysed library(module.path());
  EXPECT_TRUE(std::ranges::all_of(library.roles, [](LibcRole role) { return role == LibcRole::kNone; }));
}

TEST(LibcRoles, VariantsAreMovedWithoutChecksAndReachedThroughTheirEntriesOnly) {
  const Assembled module(kStart + kResolver + kIfunc + asm_function("fast", "mov al, [rdi]\n ret") +
                         asm_function("slow", "mov al, [rdi]\n ret") +
                         asm_function("other", "mov al, [rdi]\n call fast\n mov al, [rdi]\n ret", true) +
                         asm_function("jumper", "mov al, [rdi]\n jmp fast", true));
  const Analysed libc(module.path());
  const Liveness liveness(libc.program);
  Relocator relocator(libc.program, liveness, {});
  const RewrittenModule rewritten = relocator.run();
  EXPECT_EQ(rewritten.ledger.counts[static_cast<std::size_t>(Disposition::kReplaced)], 2u);
  EXPECT_EQ(rewritten.ledger.checks, 3u);
  EXPECT_EQ(rewritten.redirects.size(), 2u);
  // No call of a variant is led past its entry.
  EXPECT_TRUE(
      std::ranges::none_of(rewritten.patches, [](const ModulePatch& p) { return p.kind == ModulePatch::kCall; }));
}

TEST(LibcRoles, EveryHeapEntryOfThisLibcIsFound) {
  const Analysed libc(kLibc);
  for (const char* name : {"malloc", "free", "calloc", "realloc", "memalign", "aligned_alloc", "posix_memalign",
                           "valloc", "pvalloc", "malloc_usable_size", "__libc_malloc", "__libc_free"}) {
    EXPECT_EQ(libc.role(name), LibcRole::kHeapEntry) << name;
  }
  EXPECT_EQ(libc.role("qsort"), LibcRole::kNone);
}

TEST(LibcRoles, WhatChangesContextsIsKnownByItsCode) {
  const Assembled module(
      asm_function("jumps", "mov r8, [rdi]\n mov rdx, [rdi + 8]\n mov rsp, r8\n jmp rdx", true) +
      asm_function("switches", "mov rsp, [rsi + 16]\n mov rcx, [rsi]\n push rcx\n ret", true) +
      asm_function("makes_process", "pop rdi\n mov eax, 58\n syscall\n push rdi\n ret", true) +
      asm_function("makes_thread", "mov eax, 435\n syscall\n ret", true) +
      asm_function("returns_from_signal", "mov rax, 15\n syscall", true) +
      asm_function(
          "has_variable_array",
          "push rbp\n mov rbp, rsp\n mov rbx, rsp\n sub rsp, rdi\n mov rsp, rbx\n mov rsp, rbp\n pop rbp\n ret",
          true) +
      asm_function("keeps_stack_in_frame", "push rbp\n mov rbp, rsp\n mov rsp, [rbp - 40]\n leave\n ret", true) +
      asm_function("asks_for_id", "mov eax, 39\n syscall\n ret", true));
  const Analysed code(module.path());
  for (const char* name : {"jumps", "switches", "makes_process", "makes_thread", "returns_from_signal"})
    EXPECT_TRUE(code.changes(name)) << name;
  for (const char* name : {"has_variable_array", "keeps_stack_in_frame", "asks_for_id"})
    EXPECT_FALSE(code.changes(name)) << name;
}

TEST(LibcRoles, TheContextFunctionsOfThisLibcAreLeftAlone) {
  const Analysed libc(kLibc);
  // (clone's own call lies in no function: its frame information has a gap there.)
  for (const char* name : {"vfork", "setcontext", "swapcontext"}) {
    EXPECT_TRUE(libc.changes(name)) << name;
  }
  // What longjmp and its checked form end in has no name: it follows the public functions.
  std::size_t unnamed = 0;
  for (const Function& function : libc.program.functions()) {
    const auto& symbols = libc.image.symbols();
    const auto named = std::ranges::lower_bound(symbols, function.range.begin, {}, &Symbol::address);
    const bool has_name = named != symbols.end() && named->address == function.range.begin;
    unnamed += !has_name && changes_context(libc.program, function);
  }
  EXPECT_GE(unnamed, 2u);
  for (const char* name : {"qsort", "fopen", "printf", "syscall", "regcomp"})
    EXPECT_FALSE(libc.changes(name)) << name;
}

TEST(SystemCallNumber, IsReadFromTheBlockBefore) {
  const Assembled module(
      asm_function("a", "mov eax, 1\n syscall\n ret", true) +
      asm_function("b", "xor eax, eax\n mov edi, 3\n syscall\n ret", true) +
      asm_function("c", "mov rax, 257\n syscall\n ret", true) +
      asm_function("d", "mov eax, 1\n test edi, edi\n je 1f\n mov eax, 2\n1: syscall\n ret", true) +
      asm_function("e", "mov rax, rdi\n syscall\n ret", true) +
      asm_function("f", "mov r8d, 7\n mov eax, 20\n mov r9d, 5\n syscall\n ret", true) +
      asm_function("g", "mov r8d, 7\n syscall\n ret", true));
  const Analysed code(module.path());
  const auto number = [&](const std::string& name) {
    const Function& function = code.program.functions()[code.function(name)];
    for (std::uint32_t i = function.first; i < function.first + function.count; ++i) {
      if (is_system_call(code.program.form(i), code.program.bytes(i))) return system_call_number(code.program, i);
    }
    return -2;
  };
  EXPECT_EQ(number("a"), 1);
  EXPECT_EQ(number("b"), 0);
  EXPECT_EQ(number("c"), 257);
  EXPECT_EQ(number("d"), -1) << "two ways lead there";
  EXPECT_EQ(number("e"), -1);
  EXPECT_EQ(number("f"), 20);
  EXPECT_EQ(number("g"), -1) << "r8 is not rax";
}

TEST(SystemCalls, AreFoundByNumber) {
  EXPECT_STREQ(find_system_call(0)->name, "read");
  EXPECT_STREQ(find_system_call(257)->name, "openat");
  EXPECT_STREQ(find_system_call(439)->name, "faccessat2");
  EXPECT_EQ(find_system_call(39), nullptr) << "getpid takes no pointers";
  EXPECT_EQ(find_system_call(-1), nullptr);
  EXPECT_EQ(find_system_call(1 << 20), nullptr);
}

TEST(SystemCalls, ACallWithoutPointersIsMadeWithoutUs) {
  const Assembled module(asm_function("plain", "mov eax, 39\n syscall\n ret", true) +
                         asm_function("reads", "xor eax, eax\n syscall\n ret", true));
  const Analysed code(module.path());
  const Liveness liveness(code.program);
  AccessPlanner planner(code.program, liveness, {});
  EXPECT_TRUE(planner.plan(code.function("plain")).system_calls.empty());
  const FunctionPlan plan = planner.plan(code.function("reads"));
  ASSERT_EQ(plan.system_calls.size(), 1u);
  EXPECT_EQ(plan.system_calls[0].number, 0);
  EXPECT_TRUE(plan.system_calls[0].before);
}

}  // namespace
}  // namespace penumbra::rewrite
