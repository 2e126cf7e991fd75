// The calls that guard Penumbra's memory, as functions: what the entry points of their names do, and what `syscall`
// does when it is given their numbers. Results and errno are libc's.
// Where libc is rewritten its `syscall` instructions come to on_mapping_call (init.h), and these only call on.
//
// zone: signal-safe
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstddef>

namespace penumbra::libc::guarded {

// mapping_entries.cc
void* mmap(void* at, std::size_t bytes, int prot, int flags, int fd, off_t offset);
int munmap(void* at, std::size_t bytes);
int mprotect(void* at, std::size_t bytes, int prot);
void* mremap(void* old, std::size_t old_bytes, std::size_t bytes, int flags, void* to);

// locking.cc
int mlockall(int flags);
int munlockall();

// resource_limits.cc
int prlimit(pid_t pid, unsigned resource, const rlimit64* from, rlimit64* to);

}  // namespace penumbra::libc::guarded
