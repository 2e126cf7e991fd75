// What changes for the entry points once libc's own code is checked.
//
// An access is judged once. A function of libc whose code is rewritten with checks reports what it touches by itself, so
// its entry point only calls on; its system calls check what the kernel touches. The vector string functions are moved
// without checks (they read past the end on purpose): their entry points go on checking, and are met by calls from inside
// libc as well, since the functions' first bytes lead to them (process ruling 11).
//
//     program --> strlen (ours) --+--> check --> moved copy of the chosen strlen
//     libc    --> chosen strlen --+
//
// zone: nomalloc
#pragma once

#include <cstdint>

namespace penumbra::libc {

// How the functions that entry points call on to are found in rewritten code; what the loader of module files knows.
struct RewrittenCode {
  // Is the code at this address checked?
  bool (*is_checked)(std::uintptr_t function) = nullptr;
  // The moved copy of a function that can be redirected, else 0.
  std::uintptr_t (*copy_of)(std::uintptr_t function) = nullptr;
  // Has the function's entry lead to `to`; false where that is not possible.
  bool (*redirect)(std::uintptr_t function, std::uintptr_t to) = nullptr;
};

// While nothing but the calling thread runs.
void use_rewritten(const RewrittenCode& code);

}  // namespace penumbra::libc
