// mem*, wmem* and their fortified forms.
//
// The fortified forms keep libc's own check: after ours, the real __memcpy_chk compares sizes and aborts.
//
// memcpy calls on to memmove: references to memcpy@GLIBC_2.2.5 (programs linked before 2011) bind here too, and that
// version may be given overlapping ranges. glibc's two functions are the same code on every current CPU.
//
// zone: signal-safe
#include <sys/types.h>

#include <cstddef>
#include <cwchar>

#include "instrument/libc/entry.h"
#include "instrument/libc/search.h"
#include "runtime/base/raw_memory.h"

namespace penumbra::libc {
namespace {

using Size = std::size_t;

// A size that nothing has, usually a negative one. It has its report; carried out, the call would overrun the program.
constexpr bool is_impossible(Size bytes) {
  return bytes > Size{1} << 62;
}

template <class Char>
[[gnu::always_inline]] inline void move(const Touch& touch, Char* to, const Char* from, Size count) {
  touch.reads_chars(from, count);
  if (is_impossible(count)) [[unlikely]]
    return;  // one report is enough
  touch.writes_chars(to, count);
}

template <class Char>
[[gnu::always_inline]] inline void copy(const Touch& touch, Char* to, const Char* from, Size count) {
  touch.distinct(to, from, count * sizeof(Char));
  move(touch, to, from, count);
}

[[gnu::always_inline]] inline void copy(const Touch& touch, void* to, const void* from, Size bytes) {
  copy(touch, static_cast<char*>(to), static_cast<const char*>(from), bytes);
}

[[gnu::always_inline]] inline void move(const Touch& touch, void* to, const void* from, Size bytes) {
  move(touch, static_cast<char*>(to), static_cast<const char*>(from), bytes);
}

// C lets memcmp read both ranges whole, and glibc's does read the end first. Without strict_memcmp only what a loop
// over characters would read must be there.
template <class Char>
[[gnu::always_inline]] inline void compare(const Touch& touch, const Char* a, const Char* b, Size count) {
  if (state.strict_memcmp) [[likely]] {
    touch.reads_chars(a, count);
    touch.reads_chars(b, count);
  } else {
    touch.pair(a, b, count, [](Char x, Char y) { return x != y; });
  }
}

void swap_bytes(const Touch& touch, const void* from, void* to, ssize_t bytes) {
  if (bytes <= 1) return;
  const Size whole = static_cast<Size>(bytes) & ~Size{1};
  touch.reads(from, whole);
  touch.writes(to, whole);
}

// Reads and writes alike up to the first `c`.
void copy_until(const Touch& touch, void* to, const void* from, int c, Size most) {
  const Size count = touch.until(static_cast<const char*>(from), most, static_cast<char>(c)).touched();
  touch.distinct(to, from, count);
  touch.writes(to, count);
}

}  // namespace

PENUMBRA_LIBC_DECLARE(void*, memmove, (void* to, const void* from, Size bytes))
PENUMBRA_LIBC_DECLARE(void*, memcpy, (void* to, const void* from, Size bytes))

void* entry_memmove(void* to, const void* from, Size bytes) {
  if (checks_on()) [[likely]] {
    move(Touch("memmove", __builtin_frame_address(0)), to, from, bytes);
    if (is_impossible(bytes)) [[unlikely]]
      return to;
  } else if (!real_memmove.is_resolved()) {
    return raw_move(to, from, bytes);
  }
  return real_memmove(to, from, bytes);
}

void* entry_memcpy(void* to, const void* from, Size bytes) {
  if (checks_on()) [[likely]] {
    copy(Touch("memcpy", __builtin_frame_address(0)), to, from, bytes);
    if (is_impossible(bytes)) [[unlikely]]
      return to;
  } else if (!real_memmove.is_resolved()) {
    return raw_move(to, from, bytes);
  }
  return real_memmove(to, from, bytes);
}

PENUMBRA_LIBC_EARLY(void*, memset, (void* to, int c, Size bytes), (to, c, bytes), raw_set(to, c, bytes),
                    touch.writes(to, bytes))
PENUMBRA_LIBC_EARLY(int, memcmp, (const void* a, const void* b, Size bytes), (a, b, bytes), raw_compare(a, b, bytes),
                    compare(touch, static_cast<const char*>(a), static_cast<const char*>(b), bytes))
PENUMBRA_LIBC(int, bcmp, (const void* a, const void* b, Size bytes), (a, b, bytes),
              compare(touch, static_cast<const char*>(a), static_cast<const char*>(b), bytes))
PENUMBRA_LIBC(int, __memcmpeq, (const void* a, const void* b, Size bytes), (a, b, bytes),
              compare(touch, static_cast<const char*>(a), static_cast<const char*>(b), bytes))

PENUMBRA_LIBC(void*, __memcpy_chk, (void* to, const void* from, Size bytes, Size object), (to, from, bytes, object),
              copy(touch, to, from, bytes))
PENUMBRA_LIBC(void*, __memmove_chk, (void* to, const void* from, Size bytes, Size object), (to, from, bytes, object),
              move(touch, to, from, bytes))
PENUMBRA_LIBC(void*, mempcpy, (void* to, const void* from, Size bytes), (to, from, bytes),
              copy(touch, to, from, bytes))
PENUMBRA_LIBC(void*, __mempcpy, (void* to, const void* from, Size bytes), (to, from, bytes),
              copy(touch, to, from, bytes))
PENUMBRA_LIBC(void*, __mempcpy_chk, (void* to, const void* from, Size bytes, Size object), (to, from, bytes, object),
              copy(touch, to, from, bytes))
PENUMBRA_LIBC(void, bcopy, (const void* from, void* to, Size bytes), (from, to, bytes), move(touch, to, from, bytes))
PENUMBRA_LIBC(void, swab, (const void* from, void* to, ssize_t bytes), (from, to, bytes),
              swap_bytes(touch, from, to, bytes))
PENUMBRA_LIBC(void*, memccpy, (void* to, const void* from, int c, Size most), (to, from, c, most),
              copy_until(touch, to, from, c, most))

PENUMBRA_LIBC(void*, __memset_chk, (void* to, int c, Size bytes, Size object), (to, c, bytes, object),
              touch.writes(to, bytes))
PENUMBRA_LIBC(void, bzero, (void* to, Size bytes), (to, bytes), touch.writes(to, bytes))
PENUMBRA_LIBC(void, __bzero, (void* to, Size bytes), (to, bytes), touch.writes(to, bytes))
PENUMBRA_LIBC(void, explicit_bzero, (void* to, Size bytes), (to, bytes), touch.writes(to, bytes))
PENUMBRA_LIBC(void, __explicit_bzero_chk, (void* to, Size bytes, Size object), (to, bytes, object),
              touch.writes(to, bytes))
PENUMBRA_LIBC(void*, memfrob, (void* p, Size bytes), (p, bytes), touch.writes(p, bytes))

PENUMBRA_LIBC(void*, memchr, (const void* p, int c, Size most), (p, c, most),
              touch.until(static_cast<const char*>(p), most, static_cast<char>(c)))
PENUMBRA_LIBC(void*, rawmemchr, (const void* p, int c), (p, c),
              touch.until(static_cast<const char*>(p), kNoLimit, static_cast<char>(c)))
PENUMBRA_LIBC(void*, __rawmemchr, (const void* p, int c), (p, c),
              touch.until(static_cast<const char*>(p), kNoLimit, static_cast<char>(c)))
PENUMBRA_LIBC(void*, memrchr, (const void* p, int c, Size bytes), (p, c, bytes),
              find_backwards(touch, static_cast<const char*>(p), static_cast<char>(c), bytes))
PENUMBRA_LIBC(void*, memmem, (const void* hay, Size hay_bytes, const void* needle, Size needle_bytes),
              (hay, hay_bytes, needle, needle_bytes), touch.reads(needle, needle_bytes);
              find_in_memory(touch, static_cast<const char*>(hay), hay_bytes, static_cast<const char*>(needle),
                             needle_bytes))

std::size_t find_bytes(const char* hay, std::size_t count, const char* needle, std::size_t needle_count) {
  const void* const found = real_memmem(hay, count, needle, needle_count);
  return found == nullptr ? count : static_cast<Size>(static_cast<const char*>(found) - hay);
}

PENUMBRA_LIBC(wchar_t*, wmemcpy, (wchar_t * to, const wchar_t* from, Size count), (to, from, count),
              copy(touch, to, from, count))
PENUMBRA_LIBC(wchar_t*, wmempcpy, (wchar_t * to, const wchar_t* from, Size count), (to, from, count),
              copy(touch, to, from, count))
PENUMBRA_LIBC(wchar_t*, wmemmove, (wchar_t * to, const wchar_t* from, Size count), (to, from, count),
              move(touch, to, from, count))
PENUMBRA_LIBC(wchar_t*, wmemset, (wchar_t * to, wchar_t c, Size count), (to, c, count), touch.writes_chars(to, count))
PENUMBRA_LIBC(int, wmemcmp, (const wchar_t* a, const wchar_t* b, Size count), (a, b, count),
              compare(touch, a, b, count))
PENUMBRA_LIBC(wchar_t*, wmemchr, (const wchar_t* p, wchar_t c, Size most), (p, c, most), touch.until(p, most, c))
PENUMBRA_LIBC(wchar_t*, __wmemcpy_chk, (wchar_t * to, const wchar_t* from, Size count, Size object),
              (to, from, count, object), copy(touch, to, from, count))
PENUMBRA_LIBC(wchar_t*, __wmempcpy_chk, (wchar_t * to, const wchar_t* from, Size count, Size object),
              (to, from, count, object), copy(touch, to, from, count))
PENUMBRA_LIBC(wchar_t*, __wmemmove_chk, (wchar_t * to, const wchar_t* from, Size count, Size object),
              (to, from, count, object), move(touch, to, from, count))
PENUMBRA_LIBC(wchar_t*, __wmemset_chk, (wchar_t * to, wchar_t c, Size count, Size object), (to, c, count, object),
              touch.writes_chars(to, count))

}  // namespace penumbra::libc
