// Where in the program a fault is at home: what "one report for each faulty place" counts by.
//
// An access of the program's own code is its own place. One inside libc (its code is checked too) belongs to the call
// that brought it there: strdup of a freed string reads it in strlen and again in memmove, which is one fault of one
// caller, while two callers that pass bad strings to printf meet at the same instruction of it and are two faults. So
// the place is the first frame outside libc, and reads and writes of one call stay apart.
//
// zone: signal-safe
#pragma once

#include <cstdint>

#include "runtime/base/fault.h"
#include "runtime/report/snapshot.h"

namespace penumbra::report {

struct FaultPlace {
  std::uintptr_t pc = 0;
  std::uint32_t direction = 0;  // what tells accesses of one call of libc apart; 0 for the program's own
};

// Finds libc's code. Once, at start.
void init_places();

// Walks the stack where the fault lies in libc, else costs two compares.
FaultPlace place_of(const Sources& sources, const Fault& fault);

}  // namespace penumbra::report
