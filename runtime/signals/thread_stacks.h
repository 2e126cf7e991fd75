// Memory for the alternate signal stacks of the program's threads: taken from a pool, and back in it at thread exit.
//
//     | guard page, inaccessible | kThreadStackBytes ......... |  next one ...
//
// Stacks are mapped a few at a time and never unmapped: as many as there were threads at once.
//
// zone: nomalloc
#pragma once

#include <cstddef>
#include <cstdint>

namespace penumbra::signals {

// Room for the kernel's frame with every vector state there is (AMX: 11 KiB), and for a handler of the program's that
// asks for an alternate stack and finds ours; the report itself has another stack. Untouched pages cost nothing.
inline constexpr std::size_t kThreadStackBytes = 64 << 10;

// The lowest byte of kThreadStackBytes; null where the kernel has no memory.
std::uint8_t* take_thread_stack_memory();
void give_thread_stack_memory(std::uint8_t* stack);

// In a fork child, by its only thread: whoever held the pool's lock is not there.
void reset_thread_stacks_after_fork();

}  // namespace penumbra::signals
