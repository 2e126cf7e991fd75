// Writing a module's patches over its original code.
//
// zone: nomalloc
#pragma once

#include "instrument/load/areas.h"
#include "runtime/base/os_linux.h"

namespace penumbra::load {

// Brings all patches of a published area into the module, or none: an error when the kernel does not let code be written.
// The code stays executable all the while; no other thread may run in it (before the module's constructors, or alone in
// the process). `fd` is open on the module file; -1 keeps the pages that are there, with what a debugger has written to
// them.
os::Result patch_module(const Area& area, int fd);
// A jump of five bytes, to be written over code that can be written now.
void put_jump(std::uintptr_t at, std::uintptr_t target);

}  // namespace penumbra::load
