#include "runtime/stacks/unwind.h"

#include <ucontext.h>

#include "runtime/stacks/registers.h"
#include "runtime/stacks/stacks.h"
#include "runtime/stacks/walker.h"

namespace penumbra::stacks {
namespace {

// Frames of our own between this file and the code that `from` speaks of.
constexpr std::size_t kMaxOwnFrames = 64;

// The walk again, with every register: starts here, goes out to `from`, and on. 0, with nothing written, where it does
// not get there: it can only on the stack that `from` is on.
__attribute__((noinline)) std::size_t unwind_with_all_registers(const CodeContext& from, std::uintptr_t* frames,
                                                                std::size_t max) {
  Registers here;
  std::uint64_t* value = here.value;
  asm volatile(
      "mov %%rbx, 3*8(%0)\n\t"
      "mov %%rbp, 6*8(%0)\n\t"
      "mov %%rsp, 7*8(%0)\n\t"
      "mov %%r12, 12*8(%0)\n\t"
      "mov %%r13, 13*8(%0)\n\t"
      "mov %%r14, 14*8(%0)\n\t"
      "mov %%r15, 15*8(%0)\n\t"
      "lea 0(%%rip), %%rax\n\t"
      "mov %%rax, 16*8(%0)"
      :
      : "r"(value)
      : "rax", "memory");
  here.known = kCalleeSaved | 1u << kRip;
  Walker walker(here, Way::kExactly);
  return walker.go_to(from, kMaxOwnFrames) ? walker.walk(frames, max) : 0;
}

std::size_t unwind_by(Way way, const CodeContext& from, std::uintptr_t* frames, std::size_t max) {
  Walker walker(from, way);
  const std::size_t count = walker.walk(frames, max);
  if (!walker.needs_register()) [[likely]]
    return count;
  const std::size_t better = unwind_with_all_registers(from, frames, max);
  return better != 0 ? better : count;
}

}  // namespace

std::size_t unwind_by_rules(const CodeContext& from, std::uintptr_t* frames, std::size_t max) {
  return unwind_by(Way::kByRules, from, frames, max);
}

std::size_t unwind(const CodeContext& from, std::uintptr_t* frames, std::size_t max) {
  return unwind_by(Way::kExactly, from, frames, max);
}

std::size_t unwind_ucontext(const void* ucontext, std::uintptr_t* frames, std::size_t max) {
  // The order of gregs is the kernel's (asm/sigcontext.h), the index that of DWARF.
  static constexpr int kOrder[kRegisters] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
                                             REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                             REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
  const auto* context = static_cast<const ucontext_t*>(ucontext);
  Registers registers;
  for (unsigned r = 0; r < kRegisters; ++r) {
    registers.set(r, static_cast<std::uint64_t>(context->uc_mcontext.gregs[kOrder[r]]));
  }
  return Walker(registers, Way::kExactly).walk(frames, max);
}

}  // namespace penumbra::stacks
