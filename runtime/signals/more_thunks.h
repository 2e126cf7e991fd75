// Thunks beyond those that are compiled in (dispositions.h): written when they are needed, a page at a time, as many as a
// program has handlers.
//
//     a block, two pages        +-- code, not writable --------------------------+-- values ---------------------+
//                               | thunk 0 | thunk 1 | ... | thunk 254 | entry    | value 0 | ... | value 254 | next
//
// M1  a block is never taken back, nor moved; its place in the list says which slots it holds.
// M2  a value in use never changes; 0 is free.
// Creating a block takes two system calls and no lock: of two threads that do it at once one gives its own back.
//
// zone: signal-safe
#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>

namespace penumbra::signals::more_thunks {

using Thunk = void (*)(int, siginfo_t*, void*);

inline constexpr std::size_t kNone = ~std::size_t{0};

// Numbers of these slots follow those that are compiled in. kNone where no more memory, or no more code, is to be had.
std::size_t slot_for(std::uint64_t value);
Thunk thunk_of(std::size_t slot);
std::uint64_t value_of(std::size_t slot);
// kNone for what is no such thunk.
std::size_t slot_of(Thunk thunk);

}  // namespace penumbra::signals::more_thunks
