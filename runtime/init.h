// How Penumbra comes up inside a process, in one place and one order.
//
// The first of these wins: our constructor (the library is -z initfirst, so before every other), or the first
// call into us from the loader before any constructor has run. From then on the stage only moves forward:
//
//     kNotYet -> kRunning -> kReady | kAside
//
// kRunning is seen only by calls that init itself causes (the loader's malloc under dlsym): they get the
// bootstrap arena and unchecked paths. kAside means that we do nothing: another sanitizer is in the process,
// the program runs with raised privileges, or the shadow could not be had. Every entry point then behaves as
// if we were not there.
//
// zone: nomalloc
#pragma once

#include <cstdint>

namespace penumbra::runtime {

enum class Stage : std::uint8_t { kNotYet, kRunning, kReady, kAside };

Stage stage();
// Brings everything up once; later calls, and calls from within, return at once. `envp` null: it is looked
// for at the bottom of the stack (the constructor's is better: process ruling 13).
void init(char** envp);

inline bool is_ready() {
  return stage() == Stage::kReady;
}

// Our own NAME from an environment block, or null.
const char* find_environment(char** envp, const char* name);

}  // namespace penumbra::runtime
