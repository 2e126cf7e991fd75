// Which bytes an access of an unusual shape touches: string instructions with rep, bit strings, tables,
// saved state, masks and gathers.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "instrument/load/elements.h"
#include "instrument/load/original_state.h"
#include "runtime/base/module_format.h"

namespace penumbra::load {

// False when all that the access touches may be touched. `code` is the instruction, in its moved copy: over the original
// bytes a patch may have been written.
bool find_bad_special(const ModuleCheck& check, const ModuleAccess& access, const OriginalState& state,
                      const std::uint8_t* code, BadRange& range);

}  // namespace penumbra::load
