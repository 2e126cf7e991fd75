// What a function's accesses really are: the unmoved code is single-stepped, and before each instruction its memory
// operands are worked out from the registers, the masks included.
//
// A repeated string instruction traps at every element, so what it consumes is observed, not computed.
//
// zone: hosted
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/rewrite/differential/machine.h"

namespace penumbra::rewrite {

struct Access {
  std::uintptr_t pc = 0;
  unsigned operand = 0;
  bool is_write = false;
  bool is_plain = true;      // one piece of a fixed size, no string
  bool is_string = false;    // repeated
  std::uintptr_t begin = 0;  // of all pieces
  std::uintptr_t end = 0;
  std::vector<std::pair<std::uintptr_t, std::size_t>> pieces;  // address, bytes: what is touched

  bool touches(std::uintptr_t byte) const {
    for (const auto& [address, bytes] : pieces) {
      if (byte - address < bytes) return true;
    }
    return false;
  }
  bool holds(std::uintptr_t address, std::size_t bytes) const { return address >= begin && address + bytes <= end; }
};

// The registers before an instruction; `pc` is where it stands, in the module or in moved code.
struct Step {
  std::uintptr_t pc = 0;
  std::uint64_t general[16] = {};
  std::uint64_t flags = 0;
};

class Steps {
 public:
  // From here on until end(), machine_run() with this state steps through code, be it the module's own at `base`, moved
  // code, or what that calls. Accesses are those of the module's code in its place.
  void begin(std::uintptr_t base, Machine& state);
  void end();
  std::vector<Access> take() { return std::move(accesses_); }
  // Every step of the run, when trace(true) was called before it.
  void trace(bool on) { traces_ = on; }
  const std::vector<Step>& steps() const { return steps_; }

 private:
  friend void step_handler(void* context);
  void look(const void* context);

  std::uintptr_t base_ = 0;
  std::uintptr_t stack_ = 0;
  bool entered_ = false;
  bool traces_ = false;
  std::vector<Step> steps_;
  std::vector<Access> accesses_;
  std::uintptr_t previous_ = 0;
};

}  // namespace penumbra::rewrite
