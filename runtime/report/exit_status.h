// The exit status of a process that reported something: `exitcode` instead of its own.
//
// Each process decides for itself, by its pid: a forked child does not inherit the mark, and a vfork child, which
// shares our memory, cannot set it for its parent. Death by a signal is never touched.
//
// exit(), and main's return, run handlers and destructors with the program's own status first: our handler is
// registered before any other, so it runs last, flushes the program's streams as exit() would have done after it,
// and ends the process. _exit(), _Exit() and quick_exit() come to us by name.
//
// zone: signal-safe, but arm_exit_handler()
#pragma once

#include <cstdint>

namespace penumbra::report {

// `exitcode` 0: the program's own status stays.
void init_exit_status(int exitcode);
// Registers the handlers. Needs libc; called once, before any constructor of the program.
void arm_exit_handler(void (*before_end)());

// In a fork child: it has reported nothing yet.
void forget_reported_after_fork();

// Is the calling process the one whose memory this is, and not a vfork child in it?
bool owns_memory();
void mark_reported();
bool has_reported();

// What a process that wants to end with `status` ends with.
int final_status(int status);
// _exit(status), with what is left to say said.
[[noreturn]] void end_now(int status);
// Ends this process because of a report (fault=panic): with `exitcode`, or by SIGABRT when that is 0, because a
// process that was stopped has no status of its own. Nothing of the program is flushed or run, as with ASan.
[[noreturn]] void end_in_panic();

}  // namespace penumbra::report
