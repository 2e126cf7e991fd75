// The kernel door's second leaf: who this process is, its signals, its descriptors, its end.
//
// As os_linux.h: inline system calls, results as values, errno never touched. Calls that open, spawn or look outside
// the process answer EPERM once it is sealed (process ruling 18); those that end or stop it always work.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/os_linux.h"

namespace penumbra::os {

unsigned getuid();

// Reads (`get`) and sets (`set`) a limit of this process, struct rlimit64 both; null where one is not wanted.
Result limits(unsigned resource, const void* set, void* get);
// Keeps a range in memory; `on_fault`: only what is touched from now on.
Result lock_memory(AppAddr at, std::size_t bytes, bool on_fault);
// CAP_* of the calling thread, in effect.
bool has_capability(unsigned capability);

// Process id of the debugger or tracer of this process, 0 without one or where /proc does not say.
int tracer_pid();

// The calling thread's name, zero-terminated.
void thread_name(char (&name)[16]);

// Appends; creates with mode 0666 less the umask; close-on-exec; never becomes the controlling terminal.
Result open_append(const char* path);
// Moves a descriptor to `lowest` or above, close-on-exec, and closes the old one; where that is refused (a low
// descriptor limit) the old one is the result.
int move_high(int fd, int lowest);
// Both ends close-on-exec.
Result pipe(int (&ends)[2]);
bool is_open(int fd);
// Until `fd` is readable or at its end, at most `milliseconds`; true when it is.
bool wait_readable(int fd, int milliseconds);
Result write_some(int fd, const char* bytes, std::size_t count);
bool wait_writable(int fd, int milliseconds);
// The file this process runs, zero-terminated; empty where /proc does not say.
void executable_path(char* into, std::size_t bytes);
bool is_executable(const char* path);

// A kernel signal set: bit n-1 is signal n.
using SignalSet = std::uint64_t;
constexpr SignalSet signal_bit(int signal) {
  return SignalSet{1} << (signal - 1);
}
// Blocks `set` besides what is blocked; answers what was blocked before.
SignalSet block_signals(SignalSet set);
void restore_signals(SignalSet old);

SignalSet pending_signals();
// Takes a pending, blocked signal of `set` away undelivered; does nothing when there is none.
void discard_pending(SignalSet set);

// Waits while *word == expected, at most `ns`.
Result futex_wait_for(std::atomic<std::uint32_t>* word, std::uint32_t expected, std::uint64_t ns);
// Lets others run; spins for a moment once the process is sealed.
void yield();
// Is there a thread `tid` in process `pid` that a signal would reach?
bool thread_exists(int pid, int tid);

// Sets a signal's disposition to its default, by the system call.
void default_signal(int signal);
// Ends it by SIGABRT's default action, whatever handler or mask the program has.
[[noreturn]] void abort_now();

}  // namespace penumbra::os
