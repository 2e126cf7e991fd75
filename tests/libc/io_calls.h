// Calls that move bytes between the kernel (or stdio) and a buffer, and calls that fill structures, each touching
// exactly so many bytes of one block; the rest as in text_calls.h.
//
// zone: hosted
#pragma once

#include <cstddef>
#include <span>

namespace penumbra::libc::testing {

struct StreamCall {
  const char* function;
  bool is_write;
  std::size_t char_bytes;
  void (*call)(char* p, std::size_t count);  // count >= 2
};

std::span<const StreamCall> stream_calls();

// Touches sizeof(its structure) bytes.
struct StructureCall {
  const char* function;
  bool is_write;
  std::size_t bytes;
  void (*call)(void* p);
};

std::span<const StructureCall> structure_calls();

}  // namespace penumbra::libc::testing
