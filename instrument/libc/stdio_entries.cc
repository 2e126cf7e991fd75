// stdio: blocks, lines and formatted text that go between a stream and the program's buffers.
//
// What the printf family reads through its arguments (%s) is not followed: libc reads it, and that is checked where
// libc's own code is. What it writes is told by its result.
//
// zone: signal-safe
#include <stdio.h>

#include <cstdarg>
#include <cwchar>

#include "instrument/libc/entry.h"
#include "instrument/libc/kernel_io.h"

namespace penumbra::libc {
namespace {

using Size = std::size_t;
using Wide = wchar_t;

// size * count, or everything where that many bytes do not exist.
Size product(Size size, Size count) {
  Size bytes;
  return __builtin_mul_overflow(size, count, &bytes) ? kNoLimit : bytes;
}

// fgets and its like stored a text of at most `most` characters. A zero among the characters of the line ends what
// can be told here.
template <class Char>
void line_stored(const Touch& touch, Char* to, int most, const Char* result) {
  if (result == nullptr || most <= 0) return;
  touch.writes_chars(to, std::min(static_cast<Size>(most), unchecked_length(to) + 1));
}

// getline grows its buffer by our own realloc; whether the program's pointer and size are there is what can be wrong.
void line_kept(const Touch& touch, char** line, const Size* size, ssize_t result) {
  if (result < 0) return;
  touch.writes(line, sizeof *line);
  touch.writes(size, sizeof *size);
  touch.writes(*line, static_cast<Size>(result) + 1);
}

// snprintf: at most `most` bytes with the terminator. sprintf: no limit.
template <class Char>
void formatted(const Touch& touch, Char* to, Size most, int result) {
  if (result < 0 || most == 0) return;
  touch.writes_chars(to, std::min(most, static_cast<Size>(result) + 1));
}

}  // namespace

#define PENUMBRA_READS_BLOCK(name)                                                                           \
  PENUMBRA_LIBC_CALL(Size, name, (void* p, Size size, Size count, FILE* stream), (p, size, count, stream), , \
                     touch.writes(p, size* result))
PENUMBRA_READS_BLOCK(fread)
PENUMBRA_READS_BLOCK(fread_unlocked)
#define PENUMBRA_READS_BLOCK_FORTIFIED(name)                                                  \
  PENUMBRA_LIBC_CALL(Size, name, (void* p, Size object, Size size, Size count, FILE* stream), \
                     (p, object, size, count, stream), , touch.writes(p, size* result))
PENUMBRA_READS_BLOCK_FORTIFIED(__fread_chk)
PENUMBRA_READS_BLOCK_FORTIFIED(__fread_unlocked_chk)
#define PENUMBRA_WRITES_BLOCK(name)                                                                         \
  PENUMBRA_LIBC(Size, name, (const void* p, Size size, Size count, FILE* stream), (p, size, count, stream), \
                touch.reads(p, product(size, count)))
PENUMBRA_WRITES_BLOCK(fwrite)
PENUMBRA_WRITES_BLOCK(fwrite_unlocked)

#define PENUMBRA_READS_LINE(name, Char)                                                      \
  PENUMBRA_LIBC_CALL(Char*, name, (Char * to, int most, FILE* stream), (to, most, stream), , \
                     line_stored(touch, to, most, result))
#define PENUMBRA_READS_LINE_FORTIFIED(name, Char)                                                                 \
  PENUMBRA_LIBC_CALL(Char*, name, (Char * to, Size object, int most, FILE* stream), (to, object, most, stream), , \
                     line_stored(touch, to, most, result))
PENUMBRA_READS_LINE(fgets, char)
PENUMBRA_READS_LINE(fgets_unlocked, char)
PENUMBRA_READS_LINE(fgetws, Wide)
PENUMBRA_READS_LINE(fgetws_unlocked, Wide)
PENUMBRA_READS_LINE_FORTIFIED(__fgets_chk, char)
PENUMBRA_READS_LINE_FORTIFIED(__fgets_unlocked_chk, char)
PENUMBRA_READS_LINE_FORTIFIED(__fgetws_chk, Wide)
PENUMBRA_READS_LINE_FORTIFIED(__fgetws_unlocked_chk, Wide)
PENUMBRA_LIBC_CALL(char*, gets, (char* to), (to), , line_stored(touch, to, INT_MAX, result))
PENUMBRA_LIBC_CALL(char*, __gets_chk, (char* to, Size object), (to, object), ,
                   line_stored(touch, to, INT_MAX, result))

PENUMBRA_LIBC_CALL(ssize_t, getline, (char** line, Size* size, FILE* stream), (line, size, stream), ,
                   line_kept(touch, line, size, result))
PENUMBRA_LIBC_CALL(ssize_t, getdelim, (char** line, Size* size, int end, FILE* stream), (line, size, end, stream), ,
                   line_kept(touch, line, size, result))
PENUMBRA_LIBC_CALL(ssize_t, __getdelim, (char** line, Size* size, int end, FILE* stream), (line, size, end, stream), ,
                   line_kept(touch, line, size, result))

PENUMBRA_LIBC(int, puts, (const char* s), (s), touch.text(s))
PENUMBRA_LIBC(int, fputs, (const char* s, FILE* stream), (s, stream), touch.text(s))
PENUMBRA_LIBC(int, fputs_unlocked, (const char* s, FILE* stream), (s, stream), touch.text(s))
PENUMBRA_LIBC(int, fputws, (const Wide* s, FILE* stream), (s, stream), touch.text(s))
PENUMBRA_LIBC(int, fputws_unlocked, (const Wide* s, FILE* stream), (s, stream), touch.text(s))

// --- Formatted text -----------------------------------------------------------------------------------------------

#define PENUMBRA_FORMATS(name, Char, most, parameters, arguments) \
  PENUMBRA_LIBC_CALL(int, name, parameters, arguments, touch.text(format), formatted(touch, to, most, result))
PENUMBRA_FORMATS(vsprintf, char, kNoLimit, (char* to, const char* format, std::va_list list), (to, format, list))
PENUMBRA_FORMATS(vsnprintf, char, most, (char* to, Size most, const char* format, std::va_list list),
                 (to, most, format, list))
PENUMBRA_FORMATS(__vsprintf_chk, char, kNoLimit,
                 (char* to, int flag, Size object, const char* format, std::va_list list),
                 (to, flag, object, format, list))
PENUMBRA_FORMATS(__vsnprintf_chk, char, most,
                 (char* to, Size most, int flag, Size object, const char* format, std::va_list list),
                 (to, most, flag, object, format, list))
PENUMBRA_FORMATS(vswprintf, Wide, most, (Wide * to, Size most, const Wide* format, std::va_list list),
                 (to, most, format, list))
PENUMBRA_FORMATS(__vswprintf_chk, Wide, most,
                 (Wide * to, Size most, int flag, Size object, const Wide* format, std::va_list list),
                 (to, most, flag, object, format, list))

// The variadic form of an entry point calls on to the real form that takes a list.
#define PENUMBRA_FORMATS_VARIADIC(name, Char, most, real, parameters, arguments)                \
  extern "C" __attribute__((visibility("default"))) int entry_##name parameters __asm__(#name); \
  int entry_##name parameters {                                                                 \
    std::va_list list;                                                                          \
    va_start(list, format);                                                                     \
    const Touch touch(#name, __builtin_frame_address(0));                                       \
    if (real.is_checked_here()) touch.text(format);                                             \
    const int result = real arguments;                                                          \
    if (real.is_checked_here()) formatted(touch, to, most, result);                             \
    va_end(list);                                                                               \
    return result;                                                                              \
  }
PENUMBRA_FORMATS_VARIADIC(sprintf, char, kNoLimit, real_vsprintf, (char* to, const char* format, ...),
                          (to, format, list))
PENUMBRA_FORMATS_VARIADIC(snprintf, char, most, real_vsnprintf, (char* to, Size most, const char* format, ...),
                          (to, most, format, list))
PENUMBRA_FORMATS_VARIADIC(__sprintf_chk, char, kNoLimit, real___vsprintf_chk,
                          (char* to, int flag, Size object, const char* format, ...),
                          (to, flag, object, format, list))
PENUMBRA_FORMATS_VARIADIC(__snprintf_chk, char, most, real___vsnprintf_chk,
                          (char* to, Size most, int flag, Size object, const char* format, ...),
                          (to, most, flag, object, format, list))
PENUMBRA_FORMATS_VARIADIC(swprintf, Wide, most, real_vswprintf, (Wide * to, Size most, const Wide* format, ...),
                          (to, most, format, list))
PENUMBRA_FORMATS_VARIADIC(__swprintf_chk, Wide, most, real___vswprintf_chk,
                          (Wide * to, Size most, int flag, Size object, const Wide* format, ...),
                          (to, most, flag, object, format, list))

}  // namespace penumbra::libc
