// From a check in the area to a report: the parts that all kinds of checks share.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "instrument/load/areas.h"
#include "instrument/load/original_state.h"
#include "instrument/load/slots.h"

namespace penumbra::load {

// The record of the check whose call returns to this address, null if there is none.
const ModuleCheck* check_at(const Area& area, std::uintptr_t return_address);
// The program's registers where a check was called.
OriginalState state_of(const Area& area, const SavedRegisters& saved);

// Raises a fault; vector registers are kept. `function` is the call that found it, null for an instruction's own access.
void report_access(const OriginalState& state, std::uintptr_t pc, std::uintptr_t address, std::size_t size,
                   bool is_write, std::uintptr_t bad, const char* function = nullptr);

}  // namespace penumbra::load
