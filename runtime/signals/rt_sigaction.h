// The rt_sigaction system call, for whoever meets the instruction: libc's own, or a program's (process ruling 1).
//
// Interposing by name does not see what libc does for itself (signal(), the handlers of pthread_cancel and set*id).
//
// zone: signal-safe
#pragma once

#include <cstddef>

namespace penumbra::signals {

// As the kernel's rt_sigaction(2): takes and gives its struct, returns its result (0 or a negated errno). What the program
// wants gets a thunk where dispositions.h says so, what it asks for is its own.
long on_rt_sigaction(int signal, const void* wanted, void* old, std::size_t mask_bytes);

// Where libc is not rewritten: lets its only instruction for this call come by us. (Its moved copy does so as every moved
// system call, instrument/load/system_calls.h.) False where libc looks unlike what is known or its code may not be
// written; interposition by name is left then. Before the program's first thread.
bool take_libc_call();

}  // namespace penumbra::signals
