// What a signal handler sees of code that was moved: the state that the program would have had, and the way back.
//
// Process rulings 2 and 3. A handler gets the original pc, registers and flags (a dead flag or register, which no path reads
// before it is written, may hold a check's value). When it returns and has changed nothing, execution goes on exactly
// where it was; when it has changed something, at the relocated copy of the pc it chose. A fault of a check's own load of
// the shadow is never shown: the checked instruction runs without that check and faults by itself, with the right
// siginfo.
//
// zone: signal-safe
#pragma once

#include <ucontext.h>

#include "instrument/load/areas.h"

namespace penumbra::load {

// Registers at a place in an area: general ones by encoding, flags.
struct PlaceState {
  std::uintptr_t pc = 0;
  std::uint64_t value[16] = {};
  std::uint64_t flags = 0;
};

PlaceState place_state(const ucontext_t& context);

class Interrupted {
 public:
  // A synchronous memory fault of what the program never asked for: a check's own load, or a look at its data by a
  // check's slow part. True when the context has been changed to go on without; the handler must return at once.
  static bool is_own_fault(ucontext_t& context);

  // Shows in `context` the original state that belongs to `at`, in `area`: where the context itself stands, or, when it
  // stands in the slow part of a check, where that was called. Called at most once; without it nothing was moved.
  void show(ucontext_t& context, const Area& area, const PlaceState& at);
  // After the program's handler: the context goes on in moved code.
  void go_on(ucontext_t& context) const;

  explicit Interrupted(const ucontext_t& context);

 private:
  gregset_t actual_;  // registers as the kernel saved them
  gregset_t shown_;   // as the handler sees them
};

}  // namespace penumbra::load
