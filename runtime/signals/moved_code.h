// What a handler is shown where code was moved, for every signal: registers (instrument/load/interrupted.h) and siginfo.
//
// A signal may also come while the slow part of a check runs, in our own code and on the program's stack. The check is no
// part of the program, so that stack is unwound up to where moved code called, and the state shown is that of the check.
// Other code of ours (malloc, an interposed memcpy) was called by the program and is shown as it is.
//
// zone: signal-safe
#pragma once

#include <signal.h>
#include <ucontext.h>

#include "instrument/load/interrupted.h"

namespace penumbra::signals {

// Changes `context` (and `info`, null where the handler gets none) to what the program would have seen.
void show_unmoved(load::Interrupted& interrupted, int signal, siginfo_t* info, ucontext_t& context);

}  // namespace penumbra::signals
