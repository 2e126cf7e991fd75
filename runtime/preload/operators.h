// C++ allocation failure without C++: calling the new_handler and throwing from a library that links no
// libstdc++.
//
// zone: nomalloc
#pragma once

#include "runtime/base/address.h"
#include "runtime/preload/objects.h"

#include <atomic>
#include <cstddef>

namespace penumbra::preload {

// True where the program (or a library before us in the search order) replaced one of the four base
// operators. Then ours forward as libstdc++'s do, and allocators cannot be told apart (process ruling 14).
bool operators_are_replaced();
// Looks at the search order; called once at start.
void find_replaced_operators();
void set_operators_are_replaced(bool replaced);

// As operator new: calls the new_handler until there is memory, else throws std::bad_alloc. Never null.
void* obtain_or_throw(const Request& request, const CodeContext& caller);
// std::bad_alloc out of the C++ library of whoever called; ends the process where none can be found.
[[noreturn]] void throw_bad_alloc(const CodeContext& caller);
// Does the program have a new_handler? One may be called, and may throw, before null is an answer.
bool has_new_handler(const CodeContext& caller);
// An operator as the C++ library itself defines it, not whoever comes first in the search order. Null where
// the code at `caller` has no C++ library. Found once per slot.
void* find_library_form(std::atomic<void*>& slot, const char* symbol, const CodeContext& caller);

}  // namespace penumbra::preload
