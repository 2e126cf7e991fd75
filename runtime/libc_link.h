// Leads libc to what replaces parts of it: its string functions to the checked entry points, its heap to ours.
//
// zone: nomalloc
#pragma once

#include "instrument/load/loaded_modules.h"

namespace penumbra::runtime {

// Process ruling 11, where libc is rewritten: the string functions that its ifuncs chose lead to the entry points of the
// same names, and entry points whose functions are checked in libc itself no longer check. Called once, after libc's
// module file was loaded and the entry points are set up.
void lead_libc_to_entry_points();

// Process ruling 15: libc's own malloc family leads to ours, whether libc is rewritten or not. Called once, after the
// above, in processes whose heap is ours. Where code cannot be written, or a
// debugger may write it, libc keeps its own.
void lead_libc_to_heap();

// The same for the libc of another namespace, should the module be one; called when it has been loaded and before its
// code runs. Needs the loader's events, which come with rewriting.
void lead_another_libc_to_heap(const load::LoadedModule& module);

}  // namespace penumbra::runtime
