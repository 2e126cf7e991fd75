// Which elements a masked or gathered access touches, from the vector and mask registers as the program has them: they
// are still in the processor when a special check asks.
//
// A load or store of chosen elements is no wide load: an element that is chosen must be accessible.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/module_format.h"

namespace penumbra::load {

// The bytes of a bad access that belong together, and the first of them that may not be touched.
struct BadRange {
  std::uintptr_t address = 0;
  std::size_t size = 0;
  std::uintptr_t bad = 0;
};

// `address` is base + displacement (+ index * scale where the index is no vector), `bytes` those of the whole operand, of
// one element when it gathers; `code` the instruction. False when all that is touched may be.
bool find_bad_element(const ElementChoice& choice, std::uintptr_t address, std::size_t bytes, unsigned scale,
                      bool gathers, const std::uint8_t* code, BadRange& range);

}  // namespace penumbra::load
