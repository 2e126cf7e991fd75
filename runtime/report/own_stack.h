// Runs a function on a stack of ours, and gets out of it again from a signal handler.
//
// A report is raised on whatever stack the program stands on: a signal stack of 2 KiB, or one that has just
// overflowed. own_stack_x86_64.S holds the protocol; `top` is the end of the stack's memory, 16-byte aligned.
//
// I1  while the function runs, the word at top-16 holds the stack pointer to return to; nothing else lies above it.
//
// zone: signal-safe
#pragma once

#include <cstdint>

extern "C" {

// Calls function(argument) with the stack pointer below `top`. 1 when it returned, 0 when it was abandoned.
int penumbra_call_on_stack(void (*function)(void*), void* argument, void* top);

// Continues as if penumbra_call_on_stack(..., top) had returned 0. A signal handler makes it the interrupted
// context's next instruction, with `top` in rdi.
[[noreturn]] void penumbra_abandon_stack(void* top);
}
