// From one frame to its caller, with every register that can be recovered: the exact and slow way.
//
// The fast way (unwind.cc) handles the frames whose row says "CFA is rsp or rbp plus a constant, the return address
// lies just below it, rbp is kept or saved at a constant distance"; here is everything, including signal frames.
//
// zone: signal-safe
#pragma once

#include "runtime/stacks/cfi.h"
#include "runtime/stacks/cfi_expression.h"
#include "runtime/stacks/registers.h"
#include "runtime/stacks/stack_memory.h"

namespace penumbra::stacks {

// The canonical frame address that the row gives.
StepStatus compute_cfa(const CfiEntry& entry, const CfiRow& row, const Registers& registers, StackMemory& memory,
                       std::uint64_t& cfa);
// Replaces `registers` (rip included) by the caller's. On anything but kOk they are left as they were.
StepStatus step(const CfiEntry& entry, const CfiRow& row, Registers& registers, StackMemory& memory);

}  // namespace penumbra::stacks
