// DWARF expressions as call frame information uses them: a small stack machine.
//
// PLT entries, realigned stacks and hand-written assembly need it; everything else is offsets. Every loop is bounded
// by a step count, the stack is fixed, memory is read through StackMemory only.
//
// zone: signal-safe
#pragma once

#include <cstdint>

#include "runtime/stacks/cfi.h"
#include "runtime/stacks/registers.h"
#include "runtime/stacks/stack_memory.h"

namespace penumbra::stacks {

enum class StepStatus : std::uint8_t {
  kOk,
  kEnd,              // outermost frame
  kBroken,           // unreadable memory, nonsense, an operation that frames do not use
  kUnknownRegister,  // would go on if one more register were known
};

// Evaluates the block (ULEB length, then operations) at `block` in `section`. `cfa`, if not null, is pushed first, as
// DW_CFA_expression wants it.
StepStatus evaluate(ByteRange section, std::int32_t block, const Registers& registers, StackMemory& memory,
                    const std::uint64_t* cfa, std::uint64_t& result);

}  // namespace penumbra::stacks
