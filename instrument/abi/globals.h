// Instrumented global variables: their redzones, and their names for reports.
//
// The compiler lays out each global with a redzone behind it and hands over one descriptor per global from a module
// constructor; the array lives in the module until its destructor takes it back. Registered arrays form a list, newest
// first; a report looks through all of them.
//
// I1  the shadow of a registered global allows exactly its bytes; its redzone has kGlobalRedzone.
// I2  after unregistering, the shadow of the whole range is 0: dlclose unmaps without telling us.
//
// zone: nomalloc
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"

namespace penumbra::abi {

struct GlobalInfo {
  AppAddr begin;
  std::size_t bytes = 0;
  std::size_t bytes_with_redzone = 0;
  const char* name = nullptr;    // as in the source, demangled by clang
  const char* module = nullptr;  // the translation unit
  const char* file = nullptr;    // where it is defined, if the compiler says so; else null
  std::uint32_t line = 0;
};

// The registered global that covers the address, redzone included, else one that begins within 64 bytes behind it.
// Tries the lock only: false also when it is taken. Signal-safe.
bool describe_global(AppAddr address, GlobalInfo& info);
std::size_t registered_globals();

// Around fork(): the child must not inherit a lock that another thread holds.
void lock_globals();
void unlock_globals();
void reset_globals_lock();

}  // namespace penumbra::abi
