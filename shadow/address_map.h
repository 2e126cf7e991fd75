// The direct shadow map: one reservation at a fixed place, taken once, never touched here.
//
//     0            0x7fff8000     0x8fff7000   0x02008fff7000   0x10007fff8000        2^47
//     | low memory | low shadow   | image of   | high shadow    | high memory         |
//     |            |              | the shadow |                |                     |
//
// I1  after a successful reserve(), both shadow parts are readable and writable, cost nothing until touched, are
//     never huge pages and never dumped; the image between them is inaccessible.
// I2  a failed reserve() leaves no mapping behind, and is_reserved() stays false: every check then passes.
//
// zone: nomalloc
#pragma once

#include "runtime/base/os_linux.h"
#include "shadow/encoding.h"

namespace penumbra::shadow {

// Idempotent. Not thread-safe: called once at start, before the program's first thread.
os::Result reserve_direct_map();
bool is_reserved();
// Takes the reservation back, for tests that try it again.
void release_direct_map_test_only();

}  // namespace penumbra::shadow
