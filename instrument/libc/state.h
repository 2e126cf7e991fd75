// What the entry points look at on every call: are checks on, and what the options said.
//
// All zero (checks off, nothing resolved) means "not ours yet", and that is how the loader finds it: entry points run
// before this library is relocated (IFUNC resolvers of other libraries call memcpy) and before its constructor.
//
// zone: signal-safe
#pragma once

#include <cstddef>

#include "instrument/libc/init.h"
#include "runtime/base/text_buffer.h"

namespace penumbra::libc {

struct State {
  bool checks_on = false;  // set last, by init()
  bool is_host = false;    // Penumbra has memory of its own here that the program must not touch
  bool reads = false;      // report reads, and writes: the option check=
  bool writes = false;
  bool overlap = false;                     // report copies whose ranges overlap
  bool strict_memcmp = false;               // memcmp must be able to read both ranges whole
  void (*say)(TextBuffer& line) = nullptr;  // prints one line, given without its newline
  void (*before_dlclose)() = nullptr;       // these as in init.h
  void (*end_process)(int status) = nullptr;
  void (*hold_threads)() = nullptr;
  void (*resume_threads)() = nullptr;
  long (*rt_sigaction)(int signal, const void* wanted, void* old, std::size_t mask_bytes) = nullptr;
  ThreadHooks threads;
};

extern constinit State state;

inline bool checks_on() {
  return state.checks_on;
}

}  // namespace penumbra::libc
