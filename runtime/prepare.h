// Asks for module files from inside the checked process: `penumbra rewrite --prepare` as a helper (process ruling 16).
//
// The wait is bounded, because the program waits in dlopen meanwhile, with the loader's lock held. A helper that is not
// done by then goes on by itself, and its files are there for the next run.
//
// zone: nomalloc
#pragma once

#include <cstddef>

namespace penumbra::runtime {

// As load::Settings::prepare. True when the helper has ended in time, whatever it could make.
bool prepare_modules(const char* cache, const char* const* files, std::size_t count);

}  // namespace penumbra::runtime
