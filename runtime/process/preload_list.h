// Takes Penumbra out of LD_PRELOAD in an environment that is about to be handed to a child.
//
// The environment given is never written to: the result is a new array, whose strings are the old ones but for
// LD_PRELOAD. Entries of LD_PRELOAD are separated by blanks or colons; ours is any whose last path component is
// libpenumbra.so. Others keep their order; if none is left, the variable goes.
//
// zone: signal-safe
#pragma once

#include <cstddef>

namespace penumbra::process {

inline constexpr char kLibraryName[] = "libpenumbra.so";

// Bytes that build_without_preload() needs for `envp`; 0 where Penumbra is not preloaded in it, or envp is null.
std::size_t bytes_without_preload(char* const* envp);

// `storage`: bytes_without_preload(envp) bytes, aligned for pointers; the result points into it and into envp.
char** build_without_preload(char* const* envp, void* storage);

}  // namespace penumbra::process
