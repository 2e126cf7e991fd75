// What happens when a signal comes to one of our thunks: the program's handler runs as the kernel would have run it, on the
// same stack with the same mask, and sees code as if it had not been moved (moved_code.h). One frame of ours lies between
// the kernel's and its own.
//
// SIGSEGV and SIGBUS are looked at first: classify as KASAN's non-canonical hook does, report, hand on. Reported are: every fault in region memory and in the shadow (a bug whoever handles it); every fault that the
// program has no handler for (it is about to die of it); and, where it has one, those in the null page, at non-canonical
// addresses and in the guard of a thread's stack, without changing the exit status: a program may live by such faults
// (JVMs do). What a program protected on a thread's stack is its own business, though the stack lies in region memory.
// Other faults that the program handles are its own business: page protection is a tool (GCs, safepoints).
//
// Where there is no handler the default action follows by the faulting instruction itself, so that a core dump shows the
// program and not us.
//
// zone: signal-safe
#pragma once

#include <signal.h>

#include <cstddef>

namespace penumbra::signals {

// Called by thunk `slot` with what the kernel passed to it.
void handle_signal(std::size_t slot, int signal, siginfo_t* info, void* context);

}  // namespace penumbra::signals
