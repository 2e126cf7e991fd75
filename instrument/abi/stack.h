// Poison of stack frames: what instrumented frames leave behind when they are left without returning.
//
// An instrumented function poisons the redzones of its frame on entry and clears them on return. A frame that is left
// by an exception, longjmp, a thread's end or a vfork child's exec never clears them, and the next function that uses
// the same stack would be reported for touching its own variables. So whoever leaves frames behind calls here.
//
// Unpoisoning frames that are still alive loses reports, never makes false ones; leaving dead ones poisoned makes
// false ones. Where a frame's fate is unknown it is unpoisoned.
//
// All of it does nothing while no shadow stands, or no compiled code is loaded.
//
// zone: signal-safe
#pragma once

#include <cstddef>

#include "runtime/base/address.h"

namespace penumbra::abi {

// Control is about to leave the frame at `sp` for a frame above it, no one knows which (a throw, a noreturn call):
// unpoisons from sp to the end of its stack; when that is a signal stack, the thread's own stack as well.
void abandon_frames(AppAddr sp);

// Control moves from `sp` to `target` (longjmp, setcontext): what lies below the target on its stack is dead, what
// lies above stays. Frames of another stack than the target's stay too (they may be a suspended coroutine's), except
// that a jump off the signal stack leaves the interrupted frames of the thread's own.
void abandon_frames_below(AppAddr sp, AppAddr target);

// Control enters a context that has [stack, stack + bytes) for its stack (makecontext's uc_stack; may be empty) at
// `target`: a context that used the same memory before may have left frames there.
void enter_context(AppAddr stack, std::size_t bytes, AppAddr target);

// A new thread runs at `sp`, or this thread is about to end: nothing below sp, or nothing at all, is in use.
void begin_thread_stack(AppAddr sp);
void end_thread_stack();

// Unpoisons dead frames in [begin, end) of which only a part is known to be stack: stops at the first byte that is
// neither accessible nor a frame's. For stacks whose end nobody knows.
void clear_frames_until_foreign(AppAddr begin, AppAddr end);

}  // namespace penumbra::abi
