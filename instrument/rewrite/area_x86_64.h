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
constexpr ModuleState plain_state() {
  return {0, 0, 0, kNoPush, {kNoPush, kNoPush, kNoPush}, 0};
}

// A 32-bit relative operand in the area and what it means.
struct Link {
  enum Kind : std::uint8_t {
    kOriginal,  // an original address
    kCode,      // the relocated instruction of an original address where there is one
  };
  std::uint64_t target = 0;
  std::uint32_t operand = 0;
  std::uint8_t trailing = 0;  // bytes of the instruction behind the operand
  Kind kind = kOriginal;
};
static_assert(sizeof(Link) == 16, "there is one for every few bytes of text");

// The same for a call through a slot.
struct SlotLink {
  std::uint32_t operand = 0;
  std::uint32_t slot = 0;
};

struct Area {
  Writer writer;
  RewrittenModule module;
  std::vector<Link> links;
  std::vector<SlotLink> slot_links;

  // Room for a module of this size, so that nothing moves while it grows. What is not written takes no memory.
  void reserve(std::size_t text_bytes, std::size_t instructions);
  // What is written from here on belongs to the original instruction at this text offset, in this state.
  void mark(std::uint32_t text_offset, const ModuleState& state);
  // The same state, but a place of its own: a fault before here resumes before here.
  void add_place(std::uint32_t text_offset) { module.places.push_back({writer.position(), text_offset}); }

  void put_jump_to(std::uint64_t target, Link::Kind kind) { links.push_back({target, writer.put_jump(), 0, kind}); }
  void put_call_of_slot(unsigned slot) { slot_links.push_back({writer.put_call_through(), slot}); }
};

}  // namespace penumbra::rewrite
