// The state that the program would have, had its code not been moved: from the registers at a place in an area.
//
// zone: signal-safe
#pragma once

#include <cstdint>

#include "instrument/load/areas.h"

namespace penumbra::load {

struct OriginalState {
  std::uint64_t value[16];  // general registers by encoding
  std::uint64_t pc = 0;
  std::uint64_t flags = 0;
};

// `pc` lies in the area; `value` and `flags` are the registers there, rsp included.
OriginalState original_state(const Area& area, std::uintptr_t pc, const std::uint64_t value[16], std::uint64_t flags);

}  // namespace penumbra::load
