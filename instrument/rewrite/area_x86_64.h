// The area in the making: its code, what operands in it are to mean, and which original instruction each place of it
// stands for. The relocator and the emitter of checks both write to it.
//
// A1  places and states of the module ascend by code offset.
//
// zone: hosted
#pragma once

#include <cstdint>
#include <vector>

#include "instrument/rewrite/rewritten_module.h"
#include "instrument/rewrite/writer_x86_64.h"

namespace penumbra::rewrite {

inline constexpr std::uint8_t kNoPush = 0xff;

// Of code that stands for an original instruction as it was: nothing pushed, flags in place.
ModuleState plain_state();

// A 32-bit relative operand in the area and what it means.
struct Link {
  enum Kind : std::uint8_t {
    kOriginal,  // an original address
    kCode,      // the relocated instruction of an original address where there is one
    kSlot,      // the slot of this number
  };
  std::uint32_t operand = 0;
  std::uint32_t trailing = 0;  // bytes of the instruction behind the operand
  std::uint64_t target = 0;
  Kind kind = kOriginal;
};

struct Area {
  Writer writer;
  RewrittenModule module;
  std::vector<Link> links;

  // What is written from here on belongs to the original instruction at this text offset, in this state.
  void mark(std::uint32_t text_offset, const ModuleState& state);
  // The same state, but a place of its own: a fault before here resumes before here.
  void add_place(std::uint32_t text_offset) { module.places.push_back({writer.position(), text_offset}); }

  void put_jump_to(std::uint64_t target, Link::Kind kind) { links.push_back({writer.put_jump(), 0, target, kind}); }
  void put_call_of_slot(unsigned slot) { links.push_back({writer.put_call_through(), 0, slot, Link::kSlot}); }
};

}  // namespace penumbra::rewrite
