#include "runtime/stacks/unwind.h"

#include <ucontext.h>

#include "runtime/stacks/code_modules.h"
#include "runtime/stacks/stacks.h"
#include "runtime/stacks/walker.h"

namespace penumbra::stacks {
namespace {

// Frames of our own between this file and the code that `from` speaks of.
constexpr std::size_t kMaxOwnFrames = 64;

// The walk again, with every register: starts here, goes out to `from`, and on. Only on the stack that `from` is on.
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
  Walker walker(here, true);
  return walker.go_to(from, kMaxOwnFrames) ? walker.walk(frames, max) : 0;
}

}  // namespace

std::size_t unwind_trusted(const CodeContext& from, std::uintptr_t* frames, std::size_t max) {
  Walker walker(from);
  const std::size_t count = walker.walk(frames, max);
  if (!walker.needs_register()) [[likely]] return count;
  // The first walk has written its frames and the marker; they stand if the second cannot do better.
  std::uintptr_t better[kMaxStackFrames];
  const std::size_t better_count = unwind_with_all_registers(from, better, max < kMaxStackFrames ? max : kMaxStackFrames);
  if (better_count < count) return count;
  for (std::size_t i = 0; i < better_count; ++i) frames[i] = better[i];
  return better_count;
}

std::size_t unwind(const CodeContext& from, std::uintptr_t* frames, std::size_t max) {
  revalidate_modules();
  return unwind_trusted(from, frames, max);
}

std::size_t unwind_ucontext(const void* ucontext, std::uintptr_t* frames, std::size_t max) {
  revalidate_modules();
  // The order of gregs is the kernel's (asm/sigcontext.h), the index that of DWARF.
  static constexpr int kOrder[kRegisters] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
                                             REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                             REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
  const auto* context = static_cast<const ucontext_t*>(ucontext);
  Registers registers;
  for (unsigned r = 0; r < kRegisters; ++r) {
    registers.set(r, static_cast<std::uint64_t>(context->uc_mcontext.gregs[kOrder[r]]));
  }
  Walker walker(registers, false);
  const std::size_t count = walker.walk(frames, max);
  if (!walker.needs_register()) return count;
  Walker again(registers, true);
  return again.walk(frames, max);
}

}  // namespace penumbra::stacks
