// The memory operand of an instruction that raised a general protection fault: the processor does not tell.
//
// Page faults come with an address; an access to a non-canonical one comes without (si_addr is 0). So the instruction
// is read where it stopped, as the kernel does in get_kernel_gp_address: prefixes, opcode map, ModRM, SIB,
// displacement, with the registers of the signal context. What cannot be said (fs and gs bases, EVEX's scaled
// displacements, 32-bit addresses) is kUnknown.
//
// zone: signal-safe
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"

namespace penumbra::signals {

enum class OperandKind : std::uint8_t {
  kNone,          // the instruction touches no memory, or memory whose address is canonical: no memory error
  kUnknown,       // it may touch memory at an address that cannot be worked out
  kNonCanonical,  // this is it
};

struct Operand {
  OperandKind kind = OperandKind::kUnknown;
  AppAddr address;
  bool is_write = false;
};

Operand non_canonical_operand(const ucontext_t& context);

// The same for instruction bytes at hand. `load` reads the word at an address (the target of a `ret`).
Operand decode_operand(const std::uint8_t* code, std::size_t length, const greg_t* registers,
                       bool (*load)(AppAddr from, std::uintptr_t& word));

}  // namespace penumbra::signals
