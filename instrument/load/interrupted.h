// What a signal handler sees of code that was moved: the state that the program would have had, and the way back.
//
// Process rulings 2 and 3. A handler gets the original pc, registers and flags (a dead flag or register, which no path reads
// before it is written, may hold a check's value). When it returns and has changed nothing,
// execution goes on exactly where it was; when it has changed something, at the relocated copy of the pc it chose. A
// fault of a check's own load of the shadow is never shown: the checked instruction runs without that check and faults by
// itself, with the right siginfo.
//
// zone: signal-safe
#pragma once

#include <ucontext.h>

#include "instrument/load/areas.h"

namespace penumbra::load {

struct Interrupted {
  const Area* area = nullptr;  // null: the code was not moved
  gregset_t actual;            // registers as the kernel saved them
  gregset_t shown;             // as the handler sees them
};

// True when `context` stands in a check that faulted: it has been moved behind that check, and the handler must return
// at once. Otherwise the context shows the original state, where it stood in moved code.
bool show_original(ucontext_t& context, bool is_memory_fault, Interrupted& interrupted);
// After the program's handler: the context goes on in moved code.
void go_on(ucontext_t& context, const Interrupted& interrupted);

}  // namespace penumbra::load
