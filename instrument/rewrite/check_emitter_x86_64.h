// The code of checks: what stands before an access, the slow part (thunk) that it jumps to when the shadow is not all
// zero, and the calls of routines for what a few instructions cannot look at.
//
//     lea scratch, [base + index * scale + high - 1]          thunk:  lea scratch, [... + low]
//     (lahf; seto al, where flags are live)                           call [slot of scratch and span]
//     shr scratch, 3                                                  jmp back
//     cmp byte [scratch + shadow], 0
//     jne thunk                          ------------------->
//     back:
//
// Thunks stand apart from what runs, behind the code of many functions: they are half of all code, and next to their
// checks they would fill the pages, the instruction cache's lines and the page table with what nobody executes.
//
// E1  at `back`, and where a routine returns, registers, flags and stack are what the check found.
// E2  every routine's return address has a check record, and every place where registers or the stack differ from the
//     original's has a state.
//
// zone: hosted
#pragma once

#include <cstdint>
#include <vector>

#include "instrument/rewrite/access_plan.h"
#include "instrument/rewrite/area_x86_64.h"
#include "instrument/rewrite/program.h"

namespace penumbra::rewrite {

// Granules that a check's fast path looks at, from the one that holds the span's last byte down. A span is covered whole
// where its base is a multiple of the granule, and a single access that is misaligned from its second granule on.
constexpr unsigned tested_granules(std::int32_t low, std::int32_t high, std::size_t accesses) {
  if (accesses == 1) return static_cast<unsigned>((high - low + 7) / 8);
  return static_cast<unsigned>(((high - 1) >> 3) - (low >> 3) + 1);
}

class CheckEmitter {
 public:
  // `exact`: look at the granule of an access's first byte as well. `calls_out`: no fast path, which needs the direct map.
  CheckEmitter(const Program& program, bool exact, bool calls_out, Area& area)
      : program_(program), exact_(exact), calls_out_(calls_out), area_(area) {}

  // Before the instruction that the check names; its thunk is kept for emit_thunks().
  void emit(const Check& check, const FunctionPlan& plan);
  // In front of a system call, and behind it, where the code stands for the instruction `next`. The stack is the original's
  // in between.
  struct SystemCall {
    std::uint32_t access = 0;
    std::uint32_t returns_to = 0;  // of the call in front, where there is one
  };
  SystemCall emit_before_system_call(const SystemCallSite& site, bool may_use_red_zone);
  void emit_behind_system_call(const SystemCallSite& site, const SystemCall& call, std::uint32_t next,
                               bool may_use_red_zone);
  // All thunks since the last time.
  void emit_thunks();
  // Where the last thunks end.
  std::uint32_t end_of_thunks() const { return end_of_thunks_; }

 private:
  struct PendingThunk {
    std::uint32_t jump = 0;  // operand of the jump to it
    std::uint32_t back = 0;
    Check check;
    std::uint32_t first_access = 0;
    bool may_use_red_zone = true;
  };

  void emit_plain(const Check& check, const FunctionPlan& plan);
  void emit_comparisons(const Check& check, const FunctionPlan& plan, std::int32_t moved);
  void emit_special(const Check& check, const FunctionPlan& plan);
  void emit_thunk(const PendingThunk& thunk);
  // Returns where the call stands.
  std::uint32_t emit_system_hook(unsigned slot, std::uint32_t instruction, std::uint32_t access,
                                 bool may_use_red_zone);
  std::uint32_t add_accesses(const Check& check, const FunctionPlan& plan);
  void add_check_record(const Check& check, std::uint32_t first_access);
  void mark(std::uint32_t instruction, const ModuleState& state) { area_.mark(text_offset(instruction), state); }
  std::uint32_t text_offset(std::uint32_t instruction) const { return program_.instructions()[instruction].offset; }

  const Program& program_;
  bool exact_;
  bool calls_out_;
  Area& area_;
  std::vector<PendingThunk> thunks_;
  std::uint32_t end_of_thunks_ = 0;
};

}  // namespace penumbra::rewrite
