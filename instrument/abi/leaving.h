// The interposed ways out of compiled frames, seen from above: throws, jumps, context switches, threads, vfork, dlopen.
//
// Ours are found first by every module, do what stack.h says, and go on to the next definition. libc's are looked up
// at start, because longjmp and vfork are called in signal handlers and between fork and exec; the C++ runtime's when
// first called, because it may not be there at start.
//
// zone: nomalloc
#pragma once

namespace penumbra::abi {

// Looks libc's definitions up. Whether we stand aside or not.
void resolve_leaving();

// Around fork(), in that order; fork_done() in parent and child. Also covers the list of globals.
void fork_prepare();
void fork_done();
// In a child whose parent ran no fork_prepare(), by its only thread.
void fork_child_unprepared();

}  // namespace penumbra::abi
