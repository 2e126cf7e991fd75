// Which bytes an access of an unusual shape touches: string instructions with rep, bit strings, tables, saved state.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "instrument/load/original_state.h"
#include "runtime/base/module_format.h"

namespace penumbra::load {

struct SpecialRange {
  std::uintptr_t address = 0;
  std::size_t size = 0;  // 0: nothing is touched
};

// False where this cannot be told (masks and gathers that do not lie wholly in accessible memory): unchecked. `code` is
// the instruction, in its moved copy: over the original bytes a patch may have been written.
bool special_range(const ModuleCheck& check, const ModuleAccess& access, const OriginalState& state,
                   const std::uint8_t* code, SpecialRange& range);

}  // namespace penumbra::load
