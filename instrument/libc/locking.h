// mlockall without Penumbra: the program's mappings are locked one by one, and new ones as they come.
//
// The real call would make the shadow resident (MCL_FUTURE made 8 GiB of it so), whose size no machine has. What lies
// in our own ranges is never locked, the heap's memory among it. MCL_FUTURE is a flag of ours that mmap, mremap and brk
// look at; mappings that libc makes inside itself (thread stacks) do not come by and stay unlocked.
//
// zone: signal-safe
#pragma once

#include "runtime/base/address.h"

namespace penumbra::libc {

// After the program got a new mapping: locks it under MCL_FUTURE. False where the limit does not allow that; the
// caller takes the mapping back and fails with EAGAIN, as the kernel does.
bool lock_new_mapping(AppRange range, int prot);

}  // namespace penumbra::libc
