// What a lower layer saw the program do wrong, handed up to whoever can judge and print it.
//
// Lower layers never print. They fill in a Fault and call raise_fault(); `runtime/` sets the hook at start and
// there makes a diagnosis and a report of it. Without a hook (unit tests of lower layers) a fault is counted.
// After the hook returns the program goes on, so a caller must be able to continue.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"

namespace penumbra {

enum class FaultKind : std::uint8_t {
  kBadAccess,       // [addr, addr+size) holds a byte that may not be touched; bad is the first one
  kWrappedAccess,   // addr + size wraps around (a negative size)
  kDoubleFree,      // free of a block that is freed already
  kInvalidFree,     // free of an address that no block begins at
  kMismatchedFree,  // new freed with free, malloc with delete, ...; see allocated_by and freed_by
  kSizeMismatch,    // sized delete with another size or alignment than the block has
  kCorruptHeader,   // a block's header was overwritten
  kOverlap,         // memcpy-like call whose ranges overlap: [addr,+size) and [other_addr,+size)
  kRefcount,        // a reference count was misused; words say how, addr is the count
  kWildAccess,      // a SIGSEGV that no region explains; addr is si_addr
};

// Who made or ended a block; the words in mismatch reports.
enum class AllocatorName : std::uint8_t { kNone, kMalloc, kNew, kNewArray, kVmalloc };

struct Fault {
  FaultKind kind = FaultKind::kBadAccess;
  bool is_write = false;
  AllocatorName allocated_by = AllocatorName::kNone;
  AllocatorName freed_by = AllocatorName::kNone;
  AppAddr addr;                    // the address that was used
  std::size_t size = 0;            // bytes; 0 where there is no size (frees)
  AppAddr bad;                     // first byte that may not be touched, for kBadAccess
  AppAddr other_addr;              // second range of kOverlap
  CodeContext context;             // where: unwinding starts here
  const char* function = nullptr;  // libc or API entry point that found it ("memcpy"), else null
  const char* words = nullptr;     // of kRefcount: what is wrong, a whole line
  const void* ucontext = nullptr;  // ucontext_t* when found in a signal handler; all registers are there
  int signal = 0;                  // of kWildAccess: SIGSEGV or SIGBUS
  bool address_known = true;       // false for a general protection fault whose operand could not be worked out
};

using FaultHook = void (*)(const Fault&);

// Set once at start. Passing null restores counting only.
void set_fault_hook(FaultHook hook);
void raise_fault(const Fault& fault);
// Faults raised in this process so far, with or without a hook.
std::uint64_t faults_raised();

}  // namespace penumbra
