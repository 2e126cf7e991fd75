// The state of a unit, as its word holds it: for the unit map (units.h), which owns the words, and for checks, which look
// at them without a call (check.h).
//
// zone: signal-safe
#pragma once

#include <cstdint>

namespace penumbra::shadow {

enum class UnitState : std::uint8_t { kEmpty, kFilling, kReady, kDying, kFlushing };

using UnitWord = std::uint64_t;

inline constexpr UnitWord kUnitStateMask = 7;

constexpr UnitState unit_state(UnitWord w) {
  return static_cast<UnitState>(w & kUnitStateMask);
}

// Its shadow bytes say all (U2).
constexpr bool is_populated(UnitState s) {
  return s == UnitState::kReady || s == UnitState::kDying;
}

}  // namespace penumbra::shadow
