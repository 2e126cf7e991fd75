// Reading stacks: which memory may be touched without asking, and asking for the rest.
//
// Two ranges are known: the first thread's stack, up to where the kernel put its arguments, and the calling thread's
// own stack, up to its thread control block, which glibc keeps at the stack's upper end. Every other stack (signal
// stacks, coroutines) is probed page by page, each time it is walked: nobody tells us when it goes away.
//
//     low ............ sp [ window: read freely ) limit ............ high
//
// I1  bytes in [sp, limit) are mapped and readable: they lie in a known range, or on a page that this walk probed.
// Between a probe and the read another thread could unmap the page; a stack that is being walked is in use, so that
// is left to the program that does it.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

namespace penumbra::stacks {

// The calling thread's own stack, from someone who knows: spares the look-up.
void set_own_stack(std::uintptr_t low, std::uintptr_t high);

class StackMemory {
 public:
  // Nothing may be read freely until move_to() succeeded.
  StackMemory() = default;

  // Sets the window for a stack pointer; it then holds at least 8 bytes. False when the memory there cannot be read,
  // or when sp is not a multiple of 8.
  bool move_to(std::uintptr_t sp);
  // One past the last byte of the window.
  std::uintptr_t limit() const { return limit_; }

  // Any address: freely inside the window, else after a probe. False where it cannot be read.
  bool read(std::uintptr_t address, std::uint64_t& value);
  bool read_bytes(std::uintptr_t address, void* into, std::size_t bytes);

 private:
  bool is_page_readable(std::uintptr_t address);

  std::uintptr_t begin_ = 0;  // window
  std::uintptr_t limit_ = 0;
  std::uintptr_t probed_page_ = 1;  // the page that was found readable last; 1 is no page
};

}  // namespace penumbra::stacks
