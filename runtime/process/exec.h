// What happens when a checked program starts another one.
//
// exec.cc interposes execve and its relatives, posix_spawn and posix_spawnp. A child in which Penumbra cannot run
// (program_file.h says which) gets an environment without us; every other child gets what its parent gave it. Whoever
// took something of the process away that a child must have back (resource limits) puts it right in `before`.
//
// The exec family runs in vfork children, after fork in a threaded program and in signal handlers. So: no malloc, no
// lock, no look-up of symbols, the environment of the parent is never written to, and new ones live on the stack.
// PATH is searched here, as glibc does it, because its own search would not come by our execve.
//
// system() and popen() start /bin/sh inside libc and do not come by; the shell then runs with us, and its own
// execve does.
//
// zone: signal-safe
#pragma once

#include "runtime/base/address.h"

namespace penumbra::process {

// `before` runs just before the kernel is asked to start a program in which Penumbra will not be, in the process that
// asks (a vfork child shares its memory with its parent, but not its limits); `failed` when it was not started. A
// program that keeps Penumbra sorts it out by itself. Neither runs around posix_spawn: the parent would live with the
// program's bare limits meanwhile, and the spawn itself needs a mapping. Either may be null.
struct ExecHooks {
  void (*before)() = nullptr;
  void (*failed)() = nullptr;
};

// Call once while the process has one thread. Looks up what the spawn functions need.
void init_exec(const ExecHooks& hooks);

// Ruling 6. In a process that was built with a sanitizer, Penumbra must not reserve anything. Where LD_PRELOAD is how
// we came in, the program is started again without it, before any code of its own has run, because the mere presence
// of a library in front of it makes ASan give up; that call does not return. Else true: do nothing from here on.
// `argv`, `envp`: those of the process, as the kernel laid them out.
bool stands_aside(char** argv, char** envp);

}  // namespace penumbra::process
