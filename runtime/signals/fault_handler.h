// What happens when the processor stops the program: classify as KASAN's non-canonical hook does, report, hand on.
//
// Reported are: every fault in region memory and in the shadow (a bug whoever handles it); every fault that the
// program has no handler for (it is about to die of it); and, where it has one, those in the null page and at
// non-canonical addresses, without changing the exit status: a program may live by such faults (JVMs do).
// Other faults that the program handles are its own business: page protection is a tool (GCs, safepoints).
//
// Then the program's own handler runs as the kernel would have run it, on the same stack with the same mask, or the
// default action follows by the faulting instruction itself, so that a core dump shows the program and not us.
//
// zone: signal-safe
#pragma once

#include <signal.h>

#include <cstddef>

namespace penumbra::signals {

// Called by thunk `slot` with what the kernel passed to it.
void handle_fault(std::size_t slot, int signal, siginfo_t* info, void* context);

}  // namespace penumbra::signals
