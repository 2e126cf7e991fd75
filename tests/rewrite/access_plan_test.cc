// What a plan of checks takes for granted about a function: here, whether something may lie below its stack pointer.
#include "instrument/rewrite/access_plan.h"

#include <gtest/gtest.h>

#include "tests/rewrite/assemble.h"

namespace penumbra::rewrite {
namespace {

struct Planned {
  explicit Planned(const std::string& path)
      : image(path), program(image, decoder), liveness(program), planner(program, liveness, AccessOptions()) {}

  bool may_use_red_zone(std::string_view name) {
    for (const Symbol& s : image.symbols()) {
      if (s.name == name) return planner.plan(program.function_at(s.address)).may_use_red_zone;
    }
    ADD_FAILURE() << "no symbol " << name;
    return false;
  }

  Decoder decoder;
  ElfImage image;
  Program program;
  Liveness liveness;
  AccessPlanner planner;
};

TEST(AccessPlan, ALeafThatNamesNothingBelowRspHasNoRedZone) {
  const Assembled module(
      asm_function("plain", "mov rax, [rdi]\nret", true) +
      asm_function("saves", "push rbx\nmov rbx, [rdi]\nlea rax, [rbx+1]\npop rbx\nret", true) +
      asm_function("frame", "sub rsp, 24\nmov [rsp+8], rdi\nmov rax, [rsp+8]\nadd rsp, 24\nret", true) +
      asm_function("calls", "sub rsp, 8\ncall plain\nadd rsp, 8\nret", true));
  Planned p(module.path());
  for (const char* name : {"plain", "saves", "frame", "calls"}) EXPECT_FALSE(p.may_use_red_zone(name)) << name;
}

TEST(AccessPlan, ALeafThatMayKnowAPlaceBelowRspHasOne) {
  const Assembled module(asm_function("below", "mov [rsp-8], rdi\nmov rax, [rsp-8]\nret", true) +
                         asm_function("by_rbp", "push rbp\nmov rbp, rsp\nmov [rbp-8], rdi\npop rbp\nret", true) +
                         asm_function("by_lea", "lea rax, [rsp+8]\nmov [rax-24], rdi\nret", true) +
                         asm_function("by_copy", "mov r12, rsp\nmov [r12-8], rdi\nret", true) +
                         asm_function("by_index", "mov rax, [rsp+rdi*8]\nret", true) +
                         asm_function("by_push", "push rsp\npop rax\nmov [rax-8], rdi\nret", true));
  Planned p(module.path());
  for (const char* name : {"below", "by_rbp", "by_lea", "by_copy", "by_index", "by_push"})
    EXPECT_TRUE(p.may_use_red_zone(name)) << name;
}

TEST(AccessPlan, APartThatControlLeavesToTheMiddleOfAnotherMayHaveItsRedZone) {
  const Assembled module(
      asm_function("hot", "mov [rsp-8], rdi\ntest rdi, rdi\njz cold\nback: mov rax, [rsp-8]\nret", true) +
      asm_function("cold", "mov rdi, [rsi]\njmp back"));
  Planned p(module.path());
  EXPECT_TRUE(p.may_use_red_zone("cold"));
}

}  // namespace
}  // namespace penumbra::rewrite
