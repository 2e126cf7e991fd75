// Which address space is Penumbra's own: everything that os_linux.h has mapped and not unmapped.
//
// The shadow with its image, the region span, depots and tables: the program must not map over it, unmap it or lock it,
// and what it weighs must not count against the program's limits (memory rulings 3 and 17). The kernel door keeps the
// list; nobody else needs to know of it to be on it.
//
// A fixed array of slots, claimed by compare-and-swap, so that it works inside malloc and in signal handlers. A reader
// may meet a range that is just coming or going; both ends of the mapping's life are then as good as each other.
//
// I1  a slot whose begin is not 0 holds a range that some caller of add() owns; ranges never overlap
// I2  what found no free slot is counted in lost_bytes(): unprotected, never wrong
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"

namespace penumbra::own_ranges {

// Private writable memory counts against RLIMIT_DATA, address space that is only kept free does not.
enum class Use : std::uint8_t { kData, kKeptFree };

void add(AppRange range, Use use);
// Takes [begin, end) out of whatever it is part of; a hole in the middle leaves two ranges.
void remove(AppRange range);

bool overlaps(AppRange range);
// The first part of a range that is not ours; empty, at its end, where there is none.
AppRange first_foreign(AppRange range);
std::size_t total_bytes();
std::size_t data_bytes();
// The memory around `at` has become writable: all of its range counts as data.
void became_data(AppAddr at);
std::size_t lost_bytes();

}  // namespace penumbra::own_ranges
