// Brings module files to the modules of this process, before any of their code but the loader's has run.
//
// zone: nomalloc
#pragma once

#include <cstddef>

namespace penumbra::load {

struct LoadCounts {
  std::size_t modules = 0;  // that could be rewritten
  std::size_t rewritten = 0;
  std::size_t missing = 0;  // no module file in the cache
  std::size_t refused = 0;  // damaged, of another version, no room, or the code may not be written
};

// Rewrites every module of the process but the dynamic loader, the vdso, Penumbra and what only Penumbra needs.
// `cache` is a folder of module files that must be this user's own: code comes from there. Called once, in the first
// constructor.
LoadCounts rewrite_loaded_modules(const char* cache);

}  // namespace penumbra::load
