// RLIMIT_AS and RLIMIT_DATA without what Penumbra weighs: it is added where a limit is set and hidden where it is read.
//
// Penumbra reserves about 17 TiB. A program that allows itself 4 GiB would get ENOMEM for ever, so the kernel is given
// 4 GiB plus our own bytes, and the program reads 4 GiB back. What the heap hands out lies in the reserved span and so
// no longer counts: malloc is not bounded by these limits, mmap and brk are. The span counts as data as a whole, so
// RLIMIT_DATA leaves mmap that much more room.
//
// The kernel holds the only copy of a limit; we remember what we passed to it and what that meant. A remembered pair
// counts only while the kernel's value is the one that was passed, so a vfork child that sets limits of its own can
// disturb this memory, but not make us lie about a limit that we did not touch.
//
// A program that is started without Penumbra must find the true limits: exec calls before_exec(). One that keeps
// Penumbra inherits the sum and hides it again.
//
// zone: signal-safe
#pragma once

namespace penumbra::libc {

// At start: a finite limit under which our reservations succeeded includes them already.
void hide_inherited_limits();

}  // namespace penumbra::libc
