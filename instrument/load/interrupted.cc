#include "instrument/load/interrupted.h"

#include "instrument/load/original_state.h"
#include "instrument/load/slots.h"
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

std::uintptr_t pc_of(const ucontext_t& context) {
  return static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
}

// Behind the check that stands at `pc`; 0 when there is none, so that `pc` is in the instruction itself.
std::uintptr_t behind_check(const Area& area, std::uintptr_t pc) {
  const Records<ModulePlace> places = area.file.places();
  const std::size_t n = place_at(area, pc);
  if (n == places.count || n + 1 == places.count) return 0;
  return places[n + 1].text_offset == places[n].text_offset ? area.code.begin.value + places[n + 1].code_offset : 0;
}

}  // namespace

PlaceState place_state(const ucontext_t& context) {
  PlaceState at;
  at.pc = pc_of(context);
  for (unsigned r = 0; r < 16; ++r) at.value[r] = static_cast<std::uint64_t>(context.uc_mcontext.gregs[kOrder[r]]);
  at.flags = static_cast<std::uint64_t>(context.uc_mcontext.gregs[REG_EFL]);
  return at;
}

bool Interrupted::is_own_fault(ucontext_t& context) {
  const std::uintptr_t pc = pc_of(context);
  if (pc == reinterpret_cast<std::uintptr_t>(penumbra_try_load_fault)) {
    context.uc_mcontext.gregs[REG_RIP] =
        static_cast<greg_t>(reinterpret_cast<std::uintptr_t>(penumbra_try_load_failed));
    return true;
  }
  const Area* area = area_of_code(pc);
  const std::uintptr_t behind = area != nullptr ? behind_check(*area, pc) : 0;
  if (behind == 0) return false;
  const PlaceState at = place_state(context);
  OriginalState state = original_state(*area, pc, at.value, at.flags);
  state.pc = behind;
  set(context.uc_mcontext.gregs, state);
  return true;
}

Interrupted::Interrupted(const ucontext_t& context) {
  raw_copy(&actual_, &context.uc_mcontext.gregs, sizeof actual_);
  raw_copy(&shown_, &actual_, sizeof shown_);
}

void Interrupted::show(ucontext_t& context, const Area& area, const PlaceState& at) {
  set(context.uc_mcontext.gregs, original_state(area, at.pc, at.value, at.flags));
  raw_copy(&shown_, &context.uc_mcontext.gregs, sizeof shown_);
}

void Interrupted::go_on(ucontext_t& context) const {
  gregset_t& registers = context.uc_mcontext.gregs;
  if (raw_compare(&registers, &shown_, sizeof registers) == 0) {
    raw_copy(&registers, &actual_, sizeof registers);
    return;
  }
  const std::uintptr_t pc = pc_of(context);
  const Area* area = area_of_text(pc);
  if (area == nullptr) return;
  if (const std::uintptr_t moved = relocated_pc(*area, pc)) registers[REG_RIP] = static_cast<greg_t>(moved);
}

}  // namespace penumbra::load
