// What rewritten code asks for around its `syscall` instructions.
//
// Process ruling 21. Before the instruction the memory that the kernel will read is checked; behind it, what the kernel has
// written, for as many bytes as it returned, and what had to be read to be known (paths, vectors). The kernel answers EFAULT for
// memory of ours that is not there: the call's ranges are then searched for the byte.
//
// Nothing of this lies on the stack across the instruction, because clone and vfork go on twice behind it. What the second
// routine must know of the first one is kept by thread, with the stack pointer: when something else ran in between (a signal
// handler, a child that shares our memory) the note is not the call's, and what depends on it goes unchecked.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "instrument/load/slots.h"

namespace penumbra::load {

// What SavedRegisters::span says where no span was checked: which routine was called.
enum SpecialCall : std::uint64_t { kCallsSpecial = 0, kCallsBefore = 1, kCallsBehind = 2 };

// The routines. They change registers only for a call that somebody makes in the program's stead.
void before_system_call(SavedRegisters& saved);
void behind_system_call(SavedRegisters& saved);

// rt_sigaction is made by `hook` instead of the program: as the kernel's call, its result or a negated errno. Set once.
using SigactionHook = long (*)(int signal, const void* wanted, void* old, std::size_t mask_bytes);
void set_sigaction_hook(SigactionHook hook);

// Calls that give, move or take address space are judged, and made, by `hook` instead: `arguments` are the kernel's six,
// `result` as the kernel gives it. False: the program is to make the call. Set once.
using MappingHook = bool (*)(std::int64_t number, const std::uint64_t* arguments, std::int64_t* result);
void set_mapping_hook(MappingHook hook);

// Outputs are checked before the call as well, for all that the kernel may write.
void check_outputs_before(bool wanted);

// ioctl requests met that are not known, and so not checked.
std::uint64_t unknown_controls();

}  // namespace penumbra::load
