// The names of malloc's family that libc defines as well, each with our own definition of it.
//
// Process ruling 15: the entries of these names inside libc lead here, so that who finds libc's malloc past us
// (RTLD_DEEPBIND, another namespace) shares our heap.
//
// zone: signal-safe
#pragma once

#include <cstddef>

namespace penumbra::preload {

struct HeapEntry {
  const char* name;
  void (*own)();
};

inline constexpr std::size_t kHeapEntryCount = 18;
extern const HeapEntry kHeapEntries[kHeapEntryCount];

}  // namespace penumbra::preload
