#include "instrument/load/interrupted.h"

#include "instrument/load/original_state.h"
#include "runtime/base/raw_memory.h"

namespace penumbra::load {
namespace {

// The order of gregs is the kernel's (asm/sigcontext.h); this is by encoding.
constexpr int kOrder[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                            REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

void set(gregset_t& registers, const OriginalState& state) {
  for (unsigned r = 0; r < 16; ++r) registers[kOrder[r]] = static_cast<greg_t>(state.value[r]);
  registers[REG_RIP] = static_cast<greg_t>(state.pc);
  registers[REG_EFL] = static_cast<greg_t>(state.flags);
}

// Behind the check that stands at `pc`; 0 when there is none, so that `pc` is in the instruction itself.
std::uintptr_t behind_check(const Area& area, std::uintptr_t pc) {
  const Records<ModulePlace> places = area.file.places();
  const std::size_t n = place_at(area, pc);
  if (n == places.count || n + 1 == places.count) return 0;
  return places[n + 1].text_offset == places[n].text_offset ? area.code.begin.value + places[n + 1].code_offset : 0;
}

}  // namespace

bool show_original(ucontext_t& context, bool is_memory_fault, Interrupted& interrupted) {
  gregset_t& registers = context.uc_mcontext.gregs;
  const auto pc = static_cast<std::uintptr_t>(registers[REG_RIP]);
  interrupted.area = area_of_code(pc);
  if (interrupted.area == nullptr) return false;
  std::uint64_t value[16];
  for (unsigned r = 0; r < 16; ++r) value[r] = static_cast<std::uint64_t>(registers[kOrder[r]]);
  OriginalState state = original_state(*interrupted.area, pc, value, static_cast<std::uint64_t>(registers[REG_EFL]));
  if (const std::uintptr_t behind = is_memory_fault ? behind_check(*interrupted.area, pc) : 0) {
    state.pc = behind;
    set(registers, state);
    return true;
  }
  raw_copy(&interrupted.actual, &registers, sizeof registers);
  set(registers, state);
  raw_copy(&interrupted.shown, &registers, sizeof registers);
  return false;
}

void go_on(ucontext_t& context, const Interrupted& interrupted) {
  gregset_t& registers = context.uc_mcontext.gregs;
  if (interrupted.area != nullptr && raw_compare(&registers, &interrupted.shown, sizeof registers) == 0) {
    raw_copy(&registers, &interrupted.actual, sizeof registers);
    return;
  }
  const auto pc = static_cast<std::uintptr_t>(registers[REG_RIP]);
  const Area* area = area_of_text(pc);
  if (area == nullptr) return;
  if (const std::uintptr_t moved = relocated_pc(*area, pc)) registers[REG_RIP] = static_cast<greg_t>(moved);
}

}  // namespace penumbra::load
