// The routines behind the slots: what a check calls when its fast path found a non-zero shadow byte.
//
// slots_x86_64.S holds one short entry for each scratch register and span, which all lead to one routine: it saves every
// register, asks span_is_fine(), and returns; only when that says no, it goes on to report. Nothing of the program's
// state changes but the flags, which the check has saved or knows to be dead.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/module_format.h"

namespace penumbra::load {

// All general registers by encoding, as the routines push them; the slot of rsp holds nothing.
struct SavedRegisters {
  std::uint64_t value[16];
  std::uint64_t flags;
  std::uint64_t span;
  std::uint64_t address;         // where the span begins
  std::uint64_t return_address;  // in the area: the key of the check
};

// Writes the kSlots addresses of an area's slots.
void fill_slots(std::uintptr_t* slots);

}  // namespace penumbra::load

extern "C" {

extern const char penumbra_slot_entries[];
extern const char penumbra_special_entry[];
extern const char penumbra_system_call_entry[];
extern const char penumbra_system_return_entry[];
inline constexpr std::size_t kPenumbraSlotEntryBytes = 16;

// The byte at an address, or -1 where nothing is mapped. Its one load is at _fault; a handler of memory faults goes on at
// _failed (interrupted.h).
int penumbra_try_load(std::uintptr_t address);
extern const char penumbra_try_load_fault[];
extern const char penumbra_try_load_failed[];

// Called by the routines; general registers only. Non-zero when the span may be touched as a whole.
int penumbra_span_is_fine(std::uintptr_t address, std::size_t span);
void penumbra_check_failed(const penumbra::load::SavedRegisters* registers);
void penumbra_special_check(penumbra::load::SavedRegisters* registers);
}
