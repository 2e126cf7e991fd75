// Leads libc to what replaces parts of it: its string functions to the checked entry points, its heap to ours.
//
// zone: nomalloc
#pragma once

namespace penumbra::runtime {

// Process ruling 11, where libc is rewritten: the string functions that its ifuncs chose lead to the entry points of the
// same names, and entry points whose functions are checked in libc itself no longer check. Called once, after libc's
// module file was loaded and the entry points are set up.
void lead_libc_to_entry_points();

// Process ruling 15: libc's own malloc family leads to ours, whether libc is rewritten or not. Called once, after the
// above, in processes whose heap is ours. Where code cannot be written, or a
// debugger may write it, libc keeps its own.
void lead_libc_to_heap();

}  // namespace penumbra::runtime
