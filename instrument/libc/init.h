// Start of the libc entry points: fills in the real functions and turns the checks on.
//
// zone: nomalloc
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"
#include "runtime/base/options.h"
#include "runtime/base/text_buffer.h"

namespace penumbra::libc {

// What exec must do (process::ExecHooks): see resource_limits.h.
void before_exec();
void exec_failed();

// Who keeps the stacks of the program's threads. Null members: nobody does.
struct ThreadHooks {
  // After a join, or a detaching, that succeeded.
  void (*joined)(pthread_t thread, const CodeContext& caller) = nullptr;
  void (*detached)(pthread_t thread) = nullptr;
  // What pthread_getattr_np() says of a thread, before the program sees it.
  void (*described)(pthread_t thread, pthread_attr_t& attributes) = nullptr;
  // Does all of a range belong to the stack of a thread that runs? Then the program may map and protect it, and it is
  // about to. Signal-safe.
  bool (*changes_stack)(AppRange range) = nullptr;
};

struct Hooks {
  // Prints one line for the user, given without its newline. Null: on stderr.
  void (*say)(TextBuffer& line) = nullptr;
  // Called before a module may go away; not in signal handlers. Null: nobody cares.
  void (*before_dlclose)() = nullptr;
  // Ends the process as _exit(status) does here. Null: the system call does.
  void (*end_process)(int status) = nullptr;
  // No thread of ours is there between the two: for calls that only a process with one thread may make, or that change
  // single threads. Calls nest. Null: there never is one.
  void (*hold_threads)() = nullptr;
  void (*resume_threads)() = nullptr;
  // The rt_sigaction system call, made by number: takes and gives the kernel's struct, returns its result. Null: the kernel.
  long (*rt_sigaction)(int signal, const void* wanted, void* old, std::size_t mask_bytes) = nullptr;
  ThreadHooks threads;
};

// Looks up every real function. Called once in every process, also where Penumbra stands aside; until then an entry
// point asks the loader by itself on its first call, which a signal handler should not have to do.
void resolve_all();

// resolve_all(), then, unless the options or a missing shadow say no, checks on. Our memory is guarded from now on.
// Called once, before the program's first thread. hide_inherited_limits() follows once everything large is mapped.
void init(const Options& options, const Hooks& hooks);

bool is_checking();

// mmap, munmap, mprotect, mremap and brk as `syscall` instructions of rewritten code make them: they are guarded, and
// shadow cleared, like calls of those names. `arguments` are the kernel's six; true: the call was made and `result` is what
// the kernel answers. A munmap that is not refused is left to the caller. Keeps errno.
bool on_mapping_call(std::int64_t number, const std::uint64_t* arguments, std::int64_t* result);

}  // namespace penumbra::libc
