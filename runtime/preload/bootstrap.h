// Memory for calls that come before the heap is up: the loader's and dlsym's own, during our initialisation.
//
// A bump arena in .bss; each block is aligned as asked, has its size in front, and is never given back. Only
// init's thread allocates here; the others' entry points ask owns() before they judge a pointer, so that
// free, realloc and malloc_usable_size know these blocks at any later time.
//
// Editing rules: nothing here may call anything but raw_memory.
//
// zone: signal-safe
#pragma once

#include <cstddef>

namespace penumbra::preload {

inline constexpr std::size_t kBootstrapBytes = 256u << 10;

// Zeroed. Null when the arena is used up.
void* bootstrap_allocate(std::size_t bytes, std::size_t alignment);
bool bootstrap_owns(const void* p);
std::size_t bootstrap_bytes(const void* p);

}  // namespace penumbra::preload
