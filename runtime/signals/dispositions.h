// The program's dispositions, which are kept in the kernel and nowhere else.
//
// Penumbra looks at SIGSEGV and SIGBUS first (the watched signals). Where code has been moved, it stands in front of every
// handler, so that the handler sees code that has not been moved. The kernel is given a thunk of ours in place of the program's handler;
// each handler that the program ever sets gets a thunk of its own, for good:
//
//     slot k = (handler, flags that we change)   <->   thunk k, known to the kernel
//
// So whoever asks the kernel learns everything, and nothing of ours has to change with it: a vfork or posix_spawn
// child shares our memory, not our dispositions, and what it sets for itself cannot harm its parent. SIG_DFL has slots
// like any handler for watched signals, where it means a report; SIG_IGN is handed to the kernel as it is, because exec
// passes it on. Of signals that are not watched nothing but the handler's address is changed: what a one-shot handler or
// one without siginfo is, the kernel knows.
//
// I1  a slot in use never changes.
// I2  to_program(s, to_kernel(s, a)) == a in every field that the program can see.
// I3  to_kernel(s, to_kernel(s, a)) == to_kernel(s, a): interposed by name and by system call is interposed once.
// The first slots' thunks are compiled in, so that start needs no memory for them; more_thunks.h makes as many more as are asked
// for. Where the kernel gives no memory, or none that may be executed, a handler goes to it unchanged: it runs, its
// faults are not classified, and it may see moved code.
//
// zone: signal-safe
#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>

namespace penumbra::signals {

inline constexpr std::size_t kSlots = 256;  // compiled in

// What a thunk stands for.
struct Disposition {
  std::uintptr_t handler = 0;  // SIG_DFL is 0
  int flags = 0;               // SA_SIGINFO and SA_ONSTACK as the program set them, SA_RESETHAND
  bool is_untouched = false;   // the default that a process starts with; shown without flags, as the kernel does
};

bool is_watched(int signal);  // SIGSEGV or SIGBUS
// Code has been moved: from now on every handler gets a thunk. Called once, before the program's first thread.
void cover_all_signals();
// Whether dispositions of `signal` pass through here at all.
bool is_covered(int signal);

// The action to give the kernel for what the program wants.
struct sigaction to_kernel(int signal, const struct sigaction& wanted);
// The action to give it for a signal that the program has never said anything about.
struct sigaction untouched_default();
// The action to show the program for what the kernel has.
struct sigaction to_program(int signal, const struct sigaction& held);

// What a signal that arrived at thunk `slot` is for.
Disposition disposition_of(std::size_t slot);

}  // namespace penumbra::signals
