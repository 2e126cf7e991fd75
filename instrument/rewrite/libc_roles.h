// Which functions of the C library play a part of their own: string functions that ifuncs choose from, the heap, and
// what is never moved.
//
// Process rulings 4, 11 and 15. The variants of string functions read past the end on purpose, so they are moved without
// checks, and the loader has the entry of the chosen one lead to a range-checked version, which calls the moved copy as
// the original. The heap's entries lead to ours. Both kinds are called *redirected*: from outside, control comes to them
// through their original entry only.
//
//     a resolver returns the address of a variant:   lea variant(%rip), %rax
//     variants share tails:                          jmp from one into another
//
// Only the C library is looked at: ifuncs of other modules choose between functions that are as good as any.
//
// zone: hosted
#pragma once

#include <cstdint>
#include <vector>

#include "instrument/rewrite/program.h"

namespace penumbra::rewrite {

enum class LibcRole : std::uint8_t {
  kNone,
  kStringVariant,  // moved without checks, redirected
  kHeapEntry,      // redirected
};

// By function of the program; all kNone where the module is not the C library.
std::vector<LibcRole> find_libc_roles(const Program& program);

// Ruling 4, by what the code does: asks the kernel for a new process or thread, returns from a signal, or takes its stack
// pointer from somewhere else and jumps. A stripped libc names few of these.
bool changes_context(const Program& program, const Function& function);

// `syscall` itself; not sysenter and the interrupts, which are of other systems.
bool is_system_call(const Form& form, std::span<const std::uint8_t> bytes);

// The number in eax at a `syscall` instruction, where the block before it says; -1 where it is not known.
std::int32_t system_call_number(const Program& program, std::uint32_t instruction);

}  // namespace penumbra::rewrite
