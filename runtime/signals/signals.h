// Start of the signal side: stands in front of SIGSEGV and SIGBUS, and gives each thread a stack to say so on.
//
// A program that was started with one of the two ignored keeps ignoring it, and so do the programs that it starts.
//
// The main thread and those that pthread_create() begins get an alternate signal stack, because a stack that has
// overflowed has no room for a handler. The program does not see it: sigaltstack() answers that there is none, and the
// program's own replaces it. Threads that come by another way (clone, C11's thrd_create) have none, and die by SIGSEGV
// without a report when their stack overflows.
//
// zone: nomalloc
#pragma once

#include <signal.h>

#include "runtime/base/address.h"

namespace penumbra::signals {

// What of the stack of a thread that runs an address of region memory is.
enum class StackPart : unsigned char { kNone, kInside, kGuard };

// Once, before the program's first thread. `in_span` tells region memory, `stack_part` the stacks in it; either may be
// null.
void init(bool (*in_span)(AppAddr a), StackPart (*stack_part)(AppAddr a) = nullptr);
bool is_watching();

bool in_span(AppAddr a);
StackPart stack_part(AppAddr a);

// Asked first about each synchronous SIGSEGV: true if it changed the context so that the program goes on as if nothing
// had happened (a check's own load of the shadow; process ruling 3). Set once at start; null: nobody is asked.
using ResumeHook = bool (*)(void* ucontext);
void set_resume_hook(ResumeHook hook);
bool is_resumed(void* ucontext);
// What the kernel does for SA_RESETHAND before a handler runs: the default from now on, flags and mask as they were,
// and we still stand in front of it. Signal-safe.
void reset_to_default(int signal);

using SigactionFunction = int (*)(int, const struct sigaction*, struct sigaction*);
// libc's own, looked up at init or on first use.
SigactionFunction real_sigaction();

// Is `stack` the one that we gave to the calling thread?
bool is_own_stack(const stack_t& stack);
// Sets it for the calling thread (again), if it has one from us and the program has set none.
void install_own_stack();

// Around what a new thread runs. thread_ends() is called on the thread's own stack, or does nothing for good: the
// memory of a stack that is in use cannot be given away.
void thread_begins();
void thread_ends();
void fork_child();

}  // namespace penumbra::signals
