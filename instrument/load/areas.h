// The areas of this process: relocated code of each rewritten module, by address.
//
// I1  an area is published after its code, slots and tables are complete and before its module's first patch is written;
//     from then on it does not change until it is released, after its module has been unmapped.
// I2  areas and texts of different modules do not overlap.
//
// Look-ups take no lock and may run in a signal handler. Who looks up a pc of a module keeps that module loaded (its code
// runs, or is on a stack), so that only slots of other modules can change meanwhile: each slot has a generation, odd
// while it changes, and a look-up that saw another one before than after looks again.
//
// publish() and release() are called with the loader's lock held, or before the program's first thread.
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

inline constexpr std::size_t kMaxAreas = 1024;  // modules at one time; more run unrewritten

// Holds the address space below the libraries, farther than a 32-bit displacement reaches from them, so that what is reserved
// meanwhile (the span of regions, which goes to the highest place that is large enough) leaves room for areas; and lets it
// go again. Without room to hold, areas take what they find.
void hold_room();
void release_room();

// Maps the area of `area.file` for a module at `load_base` and fills in the rest. False, with no area left mapped, when
// there is no room within reach.
bool make_area(Area& area, std::uintptr_t load_base);
// Gives back what make_area() mapped.
void unmap_area(const Area& area);
// Null when the table is full.
const Area* publish(const Area& area);
// Takes a published area away and unmaps it with its module file.
void release(const Area* area);

const Area* area_of_code(std::uintptr_t pc);
const Area* area_of_text(std::uintptr_t pc);

// The number of the place record that holds code at `pc`; the count of records where there is none.
std::size_t place_at(const Area& area, std::uintptr_t pc);
// The original instruction that relocated code at `pc` stands for, and what of its state lies elsewhere there.
std::uintptr_t original_pc(const Area& area, std::uintptr_t pc);
ModuleState state_at(const Area& area, std::uintptr_t pc);
// Where the relocated copy of an original instruction begins, 0 where it was not moved.
std::uintptr_t relocated_pc(const Area& area, std::uintptr_t original);

}  // namespace penumbra::load
