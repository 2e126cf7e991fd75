// Start of the libc entry points: fills in the real functions and turns the checks on.
//
// zone: nomalloc
#pragma once

#include "runtime/base/address.h"
#include "runtime/base/options.h"

namespace penumbra::libc {

struct Hooks {
  // Code below us that works on poisoned memory by right (libmimalloc's text): its calls are never reported.
  AppRange exempt;
};

// Looks up every real function. Called once in every process, also where Penumbra stands aside; until then an entry
// point asks the loader by itself on its first call, which a signal handler should not have to do.
void resolve_all();

// resolve_all(), then, unless the options or a missing shadow say no, checks on. Called once, after
// shadow::reserve_direct_map() and before the program's first thread.
void init(const Options& options, const Hooks& hooks);

bool is_checking();
// Turns checks off for good (the process stands aside), or off and on in tests.
void set_checking(bool on);

}  // namespace penumbra::libc
