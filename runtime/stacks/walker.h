// One walk along one stack: the state between two frames, and the three ways to the next (walker.cc).
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"
#include "runtime/stacks/cfi_expression.h"
#include "runtime/stacks/registers.h"
#include "runtime/stacks/stack_memory.h"

namespace penumbra::stacks {

// How a walk gets from frame to frame.
enum class Way : std::uint8_t {
  kByRules,  // by cached rules where there are any; who asks for it knows that they are true (code_modules.h)
  kExactly,  // by the unwind tables alone, following every known register; some 230 ns a frame
};

class Walker {
 public:
  // From a return address, with the three registers that a call site hands over.
  Walker(const CodeContext& from, Way way);
  // From an exact pc with all registers.
  Walker(const Registers& registers, Way way);

  // Writes the pc that the walk starts from and then its callers, at most `max`; returns how many.
  std::size_t walk(std::uintptr_t* frames, std::size_t max);
  // The walk ended because a rule asked for a register that is not known: with all registers it might go on.
  bool needs_register() const { return needs_register_; }
  // Goes outwards until this frame is reached, in at most `max_frames` steps.
  bool go_to(const CodeContext& target, std::size_t max_frames);
  // Goes outwards while the pc is where `stays` says; true when it has left, in at most `max_frames` steps.
  bool leave(bool (*stays)(std::uintptr_t pc), std::size_t max_frames);
  // Those known of the frame that the walk has come to.
  const Registers& registers() const { return registers_; }

 private:
  enum class Outcome : std::uint8_t { kEnd, kFull, kNeedsExactStep };

  Outcome follow_rules(std::uintptr_t* frames, std::size_t& count, std::size_t max);
  StepStatus step_exactly();
  bool step_without_cfi();

  std::uintptr_t pc_;
  std::uintptr_t sp_;
  std::uintptr_t bp_;
  bool is_exact_;  // pc_ is where the frame stands, not where it will return to
  Way way_;
  bool needs_register_ = false;
  unsigned switches_ = 0;
  Registers registers_;  // those known besides pc, sp and bp
  StackMemory memory_;
};

}  // namespace penumbra::stacks
