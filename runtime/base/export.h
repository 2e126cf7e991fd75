// Names the checked program may see. Everything else in libpenumbra.so is hidden.
//
// PENUMBRA_EXPORT goes on each definition that interposes a libc, C++ or compiler-runtime name, and on the public API.
// PENUMBRA_NEXT("name") is the definition that the program would have got without us; it asks the dynamic loader, so
// look a name up once, at start or on first use, and never between fork and exec or in a signal handler.
//
// zone: nomalloc
#pragma once

#include <dlfcn.h>

#define PENUMBRA_EXPORT extern "C" __attribute__((visibility("default")))
#define PENUMBRA_NEXT(name) (::dlsym(RTLD_NEXT, name))
