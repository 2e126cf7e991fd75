#include "runtime/base/raw_memory.h"

#include <emmintrin.h>

namespace penumbra {
namespace {

// From here on `rep` is at least as fast as a loop of 16 bytes (enhanced rep movsb/stosb, every x86-64 since 2013).
constexpr std::size_t kRepThreshold = 1024;

__m128i load(const std::uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

void store(std::uint8_t* p, __m128i v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v);
}

// A read that the compiler may not turn into a call of memcpy or memset.
template <class T>
T load_as(const std::uint8_t* p) {
  T value;
  __builtin_memcpy(&value, p, sizeof value);
  return value;
}

template <class T>
void store_as(std::uint8_t* p, T value) {
  __builtin_memcpy(p, &value, sizeof value);
}

// Up to 16 bytes by two possibly overlapping moves; all loads come before all stores.
void move_small(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
  if (bytes >= 8) {
    const auto first = load_as<std::uint64_t>(from);
    const auto last = load_as<std::uint64_t>(from + bytes - 8);
    store_as(to, first);
    store_as(to + bytes - 8, last);
  } else if (bytes >= 4) {
    const auto first = load_as<std::uint32_t>(from);
    const auto last = load_as<std::uint32_t>(from + bytes - 4);
    store_as(to, first);
    store_as(to + bytes - 4, last);
  } else if (bytes >= 2) {
    const auto first = load_as<std::uint16_t>(from);
    const auto last = load_as<std::uint16_t>(from + bytes - 2);
    store_as(to, first);
    store_as(to + bytes - 2, last);
  } else if (bytes == 1) {
    *to = *from;
  }
}

}  // namespace

void* raw_copy(void* to, const void* from, std::size_t bytes) {
  auto* d = static_cast<std::uint8_t*>(to);
  const auto* s = static_cast<const std::uint8_t*>(from);
  if (bytes <= 16) {
    move_small(d, s, bytes);
  } else if (bytes < kRepThreshold) {
    const __m128i last = load(s + bytes - 16);
    for (std::size_t i = 0; i + 16 < bytes; i += 16) store(d + i, load(s + i));
    store(d + bytes - 16, last);
  } else {
    asm volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(bytes) : : "memory");
  }
  return to;
}

void* raw_move(void* to, const void* from, std::size_t bytes) {
  auto* d = static_cast<std::uint8_t*>(to);
  const auto* s = static_cast<const std::uint8_t*>(from);
  if (bytes <= 16) {
    move_small(d, s, bytes);
    return to;
  }
  if (reinterpret_cast<std::uintptr_t>(d) - reinterpret_cast<std::uintptr_t>(s) >= bytes) {
    // Forwards never overwrites what is still to be read; the last 16 bytes are read first for the ragged end.
    const __m128i last = load(s + bytes - 16);
    for (std::size_t i = 0; i + 16 < bytes; i += 16) store(d + i, load(s + i));
    store(d + bytes - 16, last);
    return to;
  }
  const __m128i first = load(s);
  for (std::size_t i = bytes; i > 16; i -= 16) store(d + i - 16, load(s + i - 16));
  store(d, first);
  return to;
}

void* raw_set(void* to, int value, std::size_t bytes) {
  auto* d = static_cast<std::uint8_t*>(to);
  if (bytes < 16) {
    const std::uint64_t pattern = 0x0101010101010101u * static_cast<std::uint8_t>(value);
    if (bytes >= 8) {
      store_as(d, pattern);
      store_as(d + bytes - 8, pattern);
    } else if (bytes >= 4) {
      store_as(d, static_cast<std::uint32_t>(pattern));
      store_as(d + bytes - 4, static_cast<std::uint32_t>(pattern));
    } else if (bytes >= 2) {
      store_as(d, static_cast<std::uint16_t>(pattern));
      store_as(d + bytes - 2, static_cast<std::uint16_t>(pattern));
    } else if (bytes == 1) {
      *d = static_cast<std::uint8_t>(value);
    }
  } else if (bytes < kRepThreshold) {
    const __m128i pattern = _mm_set1_epi8(static_cast<char>(value));
    for (std::size_t i = 0; i + 16 < bytes; i += 16) store(d + i, pattern);
    store(d + bytes - 16, pattern);
  } else {
    asm volatile("rep stosb" : "+D"(d), "+c"(bytes) : "a"(value) : "memory");
  }
  return to;
}

int raw_compare(const void* a, const void* b, std::size_t bytes) {
  const auto* x = static_cast<const std::uint8_t*>(a);
  const auto* y = static_cast<const std::uint8_t*>(b);
  std::size_t i = 0;
  for (; i + 16 <= bytes; i += 16) {
    if (_mm_movemask_epi8(_mm_cmpeq_epi8(load(x + i), load(y + i))) != 0xffff) break;
  }
  for (; i < bytes; ++i) {
    if (x[i] != y[i]) return x[i] - y[i];
  }
  return 0;
}

std::size_t raw_length(const char* text) {
  std::size_t n = 0;
  // The barrier keeps the loop from being recognised and replaced by a call of strlen.
  while (text[n] != '\0') {
    ++n;
    asm volatile("" : "+r"(n));
  }
  return n;
}

const std::uint8_t* raw_first_nonzero(const std::uint8_t* p, const std::uint8_t* end) {
  while (end - p >= 64) {
    const __m128i any = _mm_or_si128(_mm_or_si128(load(p), load(p + 16)), _mm_or_si128(load(p + 32), load(p + 48)));
    if (_mm_movemask_epi8(_mm_cmpeq_epi8(any, _mm_setzero_si128())) != 0xffff) break;
    p += 64;
  }
  while (end - p >= 16) {
    const int zeros = _mm_movemask_epi8(_mm_cmpeq_epi8(load(p), _mm_setzero_si128()));
    if (zeros != 0xffff) return p + __builtin_ctz(static_cast<unsigned>(~zeros));
    p += 16;
  }
  while (p < end && *p == 0) ++p;
  return p;
}

}  // namespace penumbra
