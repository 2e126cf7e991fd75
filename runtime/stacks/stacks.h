// Stacks of the running program: following them and remembering them.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"
#include "runtime/base/config.h"
#include "runtime/base/stack_id.h"

namespace penumbra::stacks {

// Ends a stack that could not be followed to its outermost frame.
inline constexpr std::uintptr_t kBrokenStack = 1;

// Frames from `from` outwards: frames[0] is from.pc itself, the rest are return addresses. At most `max` of them;
// returns how many. A stack that cannot be followed ends with kBrokenStack. Reads only memory that it knows to be
// a stack or has probed; never faults, takes no lock, allocates nothing. By the unwind tables alone, some 200 ns a
// frame: for reports.
std::size_t unwind(const CodeContext& from, std::uintptr_t* frames, std::size_t max);
// The same from a signal's ucontext_t, with all registers known; frames[0] is the interrupted pc.
std::size_t unwind_ucontext(const void* ucontext, std::uintptr_t* frames, std::size_t max);

// Unwinds and stores: what an allocation or a free keeps. kNoStack when depth is 0 or the depot is full. Gives the
// frames that unwind() would give, from remembered rules and stacks: 10 to 100 ns. For the calling
// thread's own stack; from.pc must be the return address into whoever called malloc or free, since that is how closing
// of modules is noticed (code_modules.h).
StackId record(const CodeContext& from, std::size_t depth);

// In the only thread of a new child, by fork's hook.
void fork_child();

// Stores a stack once, whoever stores it; the same frames give the same id. kNoStack when the budget is used up.
StackId depot_put(const std::uintptr_t* frames, std::size_t count);
// Copies the frames of an id; returns how many, 0 for kNoStack or an id that was never given out.
std::size_t depot_get(StackId id, std::uintptr_t* frames, std::size_t max);

}  // namespace penumbra::stacks
