// memcpy and its relatives for our own use: never the interposed ones, never checked.
//
// libpenumbra.so defines memcpy, memset, memmove, memcmp and strlen for the program. Our own code calls these
// instead, and calls that the compiler makes up by itself are sent here at link time (raw_memory_wrap.cc and
// -Wl,--wrap), so that a check can never run inside the runtime.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

namespace penumbra {

void* raw_copy(void* to, const void* from, std::size_t bytes);  // ranges do not overlap
void* raw_move(void* to, const void* from, std::size_t bytes);
void* raw_set(void* to, int value, std::size_t bytes);
int raw_compare(const void* a, const void* b, std::size_t bytes);
std::size_t raw_length(const char* text);
// First non-zero byte of [p, end), or end; vectorised, reads only inside the range.
const std::uint8_t* raw_first_nonzero(const std::uint8_t* p, const std::uint8_t* end);

// A hint that the line at `p` will be written soon. It reads nothing, but ThreadSanitizer takes it for a read.
inline void expect_write([[maybe_unused]] const void* p) {
#ifndef __SANITIZE_THREAD__
  __builtin_prefetch(p, 1);
#endif
}

}  // namespace penumbra
