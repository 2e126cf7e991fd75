// The real mimalloc, past every name that we or the program define.
//
// libpenumbra.so defines malloc and the public mi_* names for the program, so a plain call of mi_malloc would
// come back to us. The functions are looked up in libmimalloc's own symbol table instead, without dlsym: this
// may run inside the loader, where dlopen and dlsym take locks and allocate.
//
// libmimalloc calls itself and memset through its procedure linkage table, which would lead to us and to
// checked entry points as well. bind() points those slots back: inner mi_* calls to libmimalloc, memset,
// memcpy and strlen to raw_memory.h. From then on it is only ours.
//
// zone: nomalloc
#pragma once

#include <cstddef>

namespace penumbra::heap {

struct Mimalloc {
  void* (*malloc)(std::size_t) = nullptr;
  void (*free)(void*) = nullptr;
  std::size_t (*usable_size)(const void*) = nullptr;
  void (*collect)(bool force) = nullptr;
  void (*option_set)(int option, long value) = nullptr;
  bool (*manage_os_memory)(void* start, std::size_t bytes, bool is_committed, bool is_large, bool is_zero,
                           int numa_node) = nullptr;
};

// Finds the loaded libmimalloc, fills `functions`, binds its inner calls, and sets the options that keep it
// in our arenas (memory ruling 18). False where no libmimalloc is loaded or a function is missing.
bool bind_mimalloc(Mimalloc& functions);

}  // namespace penumbra::heap
