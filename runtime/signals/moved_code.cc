#include "runtime/signals/moved_code.h"

#include "instrument/load/areas.h"
#include "runtime/stacks/registers.h"
#include "runtime/stacks/walker.h"

// Where our library begins and its code ends, by the linker.
extern "C" const char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" const char etext[] __attribute__((visibility("hidden")));

namespace penumbra::signals {
namespace {

// Frames of ours between a check and the deepest code that it may run (a report).
constexpr std::size_t kMostOwnFrames = 32;

// By DWARF number: the same register's number in an instruction.
constexpr unsigned kRspEncoding = 4;
constexpr unsigned kEncoding[16] = {0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15};

bool is_own_code(std::uintptr_t pc) {
  return pc >= reinterpret_cast<std::uintptr_t>(__ehdr_start) && pc < reinterpret_cast<std::uintptr_t>(etext);
}

// Takes `at`, in our own code, to where moved code called the slow part of a check; null where it is no such part.
const load::Area* find_check(load::PlaceState& at) {
  const std::uint64_t rsp_now = at.value[kRspEncoding];
  stacks::Registers registers;
  for (unsigned r = 0; r < 16; ++r) registers.set(r, at.value[kEncoding[r]]);
  registers.set(stacks::kRip, at.pc);
  stacks::Walker walker(registers, stacks::Way::kExactly);
  if (!walker.leave(is_own_code, kMostOwnFrames)) return nullptr;
  const stacks::Registers& caller = walker.registers();
  for (unsigned r = 0; r < 16; ++r) {
    if (!caller.has(r)) return nullptr;
    at.value[kEncoding[r]] = caller.value[r];
  }
  // The call itself still belongs to the check's state.
  at.pc = caller.value[stacks::kRip] - 1;
  // Up to its pushfq a routine has two words on the stack besides its return address, and the flags are in place; from
  // then on they are in the third.
  constexpr std::uint64_t kBeforeFlags = 24;
  const std::uint64_t rsp = at.value[kRspEncoding];
  if (rsp - rsp_now > kBeforeFlags) at.flags = *reinterpret_cast<const std::uint64_t*>(rsp - kBeforeFlags - 8);
  return load::area_of_code(at.pc);
}

// Addresses of instructions that a siginfo tells besides those of data.
void translate_addresses(int signal, siginfo_t& info, std::uintptr_t actual, std::uintptr_t shown) {
  if (info.si_code <= 0) return;  // sent by somebody
  void** address = nullptr;
  if (signal == SIGILL || signal == SIGFPE || signal == SIGTRAP || signal == SIGSEGV || signal == SIGBUS) {
    address = &info.si_addr;
  } else if (signal == SIGSYS) {
    address = &info.si_call_addr;
  }
  if (address != nullptr && *address == reinterpret_cast<void*>(actual)) *address = reinterpret_cast<void*>(shown);
}

}  // namespace

void show_unmoved(load::Interrupted& interrupted, int signal, siginfo_t* info, ucontext_t& context) {
  load::PlaceState at = load::place_state(context);
  const std::uintptr_t actual = at.pc;
  const load::Area* area = load::area_of_code(at.pc);
  if (area == nullptr && is_own_code(at.pc)) area = find_check(at);
  if (area == nullptr) return;
  interrupted.show(context, *area, at);
  if (info != nullptr) {
    translate_addresses(signal, *info, actual, static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RIP]));
  }
}

}  // namespace penumbra::signals
