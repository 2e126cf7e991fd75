// Brings module files to the modules of this process: to those it starts with before any of their code but the loader's
// has run, to later ones before their relocation and constructors (process ruling 10).
//
// The list of known modules is compared with the loader's link maps at start and at each of the loader's events. What is
// new gets an area when the cache has its file; what is gone gives its area back, and only then: the code of a module that is being
// closed runs (its destructors) until the loader has unmapped it. A module without a file is asked for, once, and runs
// unrewritten for good if the answer comes too late: nothing is patched once a thread may run it.
//
// zone: nomalloc
#pragma once

#include <cstddef>

#include "instrument/load/loaded_modules.h"
#include "runtime/base/text_buffer.h"

namespace penumbra::load {

struct LoadCounts {
  std::size_t modules = 0;  // that could be rewritten
  std::size_t rewritten = 0;
  std::size_t missing = 0;   // no module file in the cache
  std::size_t refused = 0;   // damaged, of another version, no room, or the code may not be written
  std::size_t released = 0;  // areas of modules that have been unloaded
  // errno of the first refusal to make code writable, 0 if there was none (MDWE, SELinux, a seccomp filter).
  int code_is_fixed = 0;
  bool follows_loader = false;  // modules that come later are rewritten too
};

struct Settings {
  // A folder of module files that must be this user's own: code comes from there.
  const char* cache = "";
  // Adds to a module file's name what this process wishes of the module at `path`.
  void (*append_key)(TextBuffer& name, const char* path) = nullptr;
  // Makes module files for these files, waiting a bounded time. True when it is worth looking again. Null: nobody does.
  bool (*prepare)(const char* cache, const char* const* files, std::size_t count) = nullptr;
  // A debugger may have written breakpoints into the text: it is patched where it is.
  bool keeps_text = false;
  // Told of each module once it is rewritten, or known not to be, and before its code runs. Null: nobody asks.
  void (*arrived)(const LoadedModule& module) = nullptr;
};

// Rewrites every module of the process but the dynamic loader, the vdso, Penumbra and what only Penumbra needs, and
// those that come later. Called once, in the first constructor.
LoadCounts start(const Settings& settings);

// In a fork child, by its only thread: whoever was reporting is not there.
void fork_child();

// Of this process so far; modules that came later are included.
LoadCounts counts();

}  // namespace penumbra::load
