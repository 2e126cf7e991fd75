// The areas of this process: relocated code of each rewritten module, by address.
//
// I1  an area is published (count_ raised with release order) after its code, slots and tables are complete and before
//     its module's first patch is written; from then on it does not change.
// I2  areas and texts of different modules do not overlap.
//
// Look-ups take no lock and may run in a signal handler: the table only grows.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "instrument/load/module_map.h"
#include "runtime/base/address.h"

namespace penumbra::load {

struct Area {
  ModuleMap file;
  std::uintptr_t load_base = 0;
  AppRange code;  // relocated code, without the slots
  AppRange text;  // of the module

  std::uint32_t code_offset(std::uintptr_t pc) const { return static_cast<std::uint32_t>(pc - code.begin.value); }
};

inline constexpr std::size_t kMaxAreas = 1024;

// Holds the address space below the libraries, as far as a 32-bit displacement reaches from them, so that what is reserved
// meanwhile (the span of regions, which goes to the highest place that is large enough) leaves room for areas; and lets it
// go again. Without room to hold, areas take what they find.
void hold_room();
void release_room();

// Maps the area of a mapped module file for a module at `load_base`. False, with nothing left mapped, when there is no
// room within reach.
bool make_area(const ModuleMap& file, std::uintptr_t load_base, Area& area);
// False when the table is full.
bool publish(const Area& area);

const Area* area_of_code(std::uintptr_t pc);
const Area* area_of_text(std::uintptr_t pc);
std::size_t area_count();
const Area& area(std::size_t n);

// The number of the place record that holds code at `pc`; the count of records where there is none.
std::size_t place_at(const Area& area, std::uintptr_t pc);
// The original instruction that relocated code at `pc` stands for, and what of its state lies elsewhere there.
std::uintptr_t original_pc(const Area& area, std::uintptr_t pc);
ModuleState state_at(const Area& area, std::uintptr_t pc);
// Where the relocated copy of an original instruction begins, 0 where it was not moved.
std::uintptr_t relocated_pc(const Area& area, std::uintptr_t original);

}  // namespace penumbra::load
