// Writing shadow bytes: poison and unpoison, with partial granules.
//
// Nothing here populates: whoever poisons region memory holds a count on its units (shadow/units.h). Callers of
// poison() on memory that others use concurrently own every granule of the range.
//
// zone: signal-safe
#pragma once

#include "shadow/encoding.h"

namespace penumbra::shadow {

// Tags whole granules. begin and bytes are multiples of the granule.
void poison(AppAddr begin, std::size_t bytes, ShadowTag tag);

// Makes [begin, begin+bytes) accessible; a last partial granule allows only its prefix. begin is granule aligned.
void unpoison(AppAddr begin, std::size_t bytes);

// unpoison(), then tags from the end of the last granule up to begin+total: one call for a fresh object.
// total >= bytes, a multiple of the granule.
void unpoison_with_tail(AppAddr begin, std::size_t bytes, std::size_t total, ShadowTag tail);

// All of a fresh block's shadow: [block, block+left) gets one tag, `bytes` bytes behind it become accessible, the rest up
// to block+total gets the other tag. All but `bytes` are multiples of the granule. Touches no shadow of neighbours.
void set_block(AppAddr block, std::size_t left, ShadowTag left_tag, std::size_t bytes, std::size_t total,
               ShadowTag tail);

// __asan_poison_memory_region: any range, whole granules inside it, and the end of a partial one where what
// follows is inaccessible already. Never makes a byte accessible.
void poison_any(AppAddr begin, std::size_t bytes, ShadowTag tag);
// __asan_unpoison_memory_region: any range; the granule it begins in becomes accessible from its first byte.
void unpoison_any(AppAddr begin, std::size_t bytes);

// Makes the shadow of a range read 0, without writing to shadow that reads 0 already (memory ruling 3): for munmap,
// mremap, brk, thread exit, dlclose. Any range outside the region span; whole shadow pages are given back.
void clear_stale(AppAddr begin, std::size_t bytes);

}  // namespace penumbra::shadow
