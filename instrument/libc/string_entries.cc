// str* and wcs*, with their fortified forms: copies, lengths, comparisons, searches, tokens.
//
// What a function touches is written once for narrow and wide characters; the list of entry points below names it.
// Where C lets a function stop early (strncmp at the first difference, strchr at the hit), only what it reads up to
// there is checked. strcoll and strxfrm read whole texts.
//
// zone: signal-safe
#include <locale.h>

#include <cctype>
#include <cstddef>
#include <cwchar>
#include <cwctype>

#include "instrument/libc/entry.h"
#include "instrument/libc/search.h"
#include "runtime/base/raw_memory.h"

namespace penumbra::libc {
namespace {

using Size = std::size_t;
using Wide = wchar_t;

// --- Copies -----------------------------------------------------------------------------------------------------

template <class Char>
void copy_text(const Touch& touch, Char* to, const Char* from) {
  const Size count = touch.text(from).touched();
  touch.writes_chars(to, count);
  touch.distinct(to, from, count * sizeof(Char));
}

// strncpy: reads to the terminator or `most`, always writes `most`.
template <class Char>
void copy_padded(const Touch& touch, Char* to, const Char* from, Size most) {
  const Size count = touch.text(from, most).touched();
  touch.writes_chars(to, most);
  touch.distinct(to, from, count * sizeof(Char));
}

// strcat and strncat: `most` characters are taken from `from` at most, a terminator always follows.
template <class Char>
void append_text(const Touch& touch, Char* to, const Char* from, Size most = kNoLimit) {
  const Scan tail = touch.text(from, most);
  const Scan head = touch.text(to);
  if (head.end != ScanEnd::kHit || tail.end == ScanEnd::kBad) return;
  touch.writes_chars(to + head.passed, tail.passed + 1);
  touch.distinct(to + head.passed, from, (tail.passed + 1) * sizeof(Char));
}

// --- Comparisons ------------------------------------------------------------------------------------------------

template <class Char>
void compare_texts(const Touch& touch, const Char* a, const Char* b, Size most = kNoLimit) {
  touch.pair(a, b, most, [](Char x, Char y) { return x == Char{} || x != y; });
}

int lower(char c) {
  return std::tolower(static_cast<unsigned char>(c));
}

std::wint_t lower(Wide c) {
  return std::towlower(static_cast<std::wint_t>(c));
}

int lower(char c, locale_t locale) {
  return ::tolower_l(static_cast<unsigned char>(c), locale);
}

std::wint_t lower(Wide c, locale_t locale) {
  return ::towlower_l(static_cast<std::wint_t>(c), locale);
}

// `locale`: none (the thread's), or one.
template <class Char, class... Locale>
void compare_folded(const Touch& touch, const Char* a, const Char* b, Size most, Locale... locale) {
  touch.pair(a, b, most,
             [=](Char x, Char y) { return x == Char{} || (x != y && lower(x, locale...) != lower(y, locale...)); });
}

template <class Char>
void whole_texts(const Touch& touch, const Char* a, const Char* b) {
  touch.text(a);
  touch.text(b);
}

// What strxfrm wrote; when the result did not fit, C says nothing about the buffer, glibc fills it.
template <class Char>
void transformed(const Touch& touch, Char* to, Size result, Size most) {
  touch.writes_chars(to, result < most ? result + 1 : 0);
}

// --- Searches ---------------------------------------------------------------------------------------------------

// The characters of a set, by bits where there are 256, else by looking through them.
template <class Char>
class CharSet {
 public:
  CharSet(const Char* set, Size count) : set_(set), count_(count) {
    if constexpr (sizeof(Char) == 1) {
      for (Size i = 0; i < count; ++i) bits_[index(set[i]) / 64] |= std::uint64_t{1} << (index(set[i]) % 64);
    }
  }

  bool contains(Char c) const {
    if constexpr (sizeof(Char) == 1) return (bits_[index(c) / 64] >> (index(c) % 64) & 1) != 0;
    for (Size i = 0; i < count_; ++i) {
      if (set_[i] == c) return true;
    }
    return false;
  }

 private:
  static unsigned index(Char c) { return static_cast<unsigned char>(c); }

  const Char* set_;
  Size count_;
  std::uint64_t bits_[4] = {};
};

template <class Char>
CharSet<Char> read_set(const Touch& touch, const Char* set) {
  return {set, touch.text(set).passed};
}

// strspn: to the first character that is not in the set (the terminator never is).
template <class Char>
Scan span(const Touch& touch, const Char* s, const CharSet<Char>& set) {
  return touch.text_until_if(s, [&](Char c) { return c == Char{} || !set.contains(c); });
}

// strcspn, strpbrk: to the first character of the set.
template <class Char>
Scan span_until(const Touch& touch, const Char* s, const CharSet<Char>& set) {
  return touch.text_until_if(s, [&](Char c) { return c == Char{} || set.contains(c); });
}

template <class Char>
void find_text(const Touch& touch, const Char* hay, const Char* needle) {
  const Size count = touch.text(needle).passed;
  search(touch, Haystack::kText, hay, kNoLimit / sizeof(Char), needle, count,
         [](const Char* in, Size in_count, const Char* what, Size what_count) {
           if constexpr (sizeof(Char) == 1) return find_bytes(in, in_count, what, what_count);
           return find_plain(in, in_count, what, what_count, [](Char x, Char y) { return x == y; });
         });
}

void find_folded(const Touch& touch, const char* hay, const char* needle) {
  const Size count = touch.text(needle).passed;
  search(touch, Haystack::kText, hay, kNoLimit, needle, count,
         [](const char* in, Size in_count, const char* what, Size what_count) {
           return find_plain(in, in_count, what, what_count, [](char x, char y) { return lower(x) == lower(y); });
         });
}

// --- Tokens -----------------------------------------------------------------------------------------------------

// Ends the token that begins at `token`: its end is read, and overwritten where it is a delimiter.
template <class Char>
void end_token(const Touch& touch, Char* token, const CharSet<Char>& delimiters) {
  const Scan scan = span_until<Char>(touch, token, delimiters);
  if (scan.end == ScanEnd::kHit && token[scan.passed] != Char{}) touch.writes_chars(token + scan.passed, 1);
}

// strtok_r(s, delimiters, save)
template <class Char>
void next_token(const Touch& touch, Char* s, const Char* delimiters, Char** save) {
  const CharSet<Char> set = read_set(touch, delimiters);
  if (s == nullptr) {
    touch.reads(save, sizeof *save);
    s = *save;
  }
  touch.writes(save, sizeof *save);
  if (s == nullptr) return;
  const Scan skipped = span<Char>(touch, s, set);
  if (skipped.end == ScanEnd::kHit && s[skipped.passed] != Char{}) end_token(touch, s + skipped.passed, set);
}

// strsep(s, delimiters)
void split_token(const Touch& touch, char** s, const char* delimiters) {
  const CharSet<char> set = read_set(touch, delimiters);
  touch.writes(s, sizeof *s);
  if (*s != nullptr) end_token(touch, *s, set);
}

}  // namespace

// --- Entry points: copies -----------------------------------------------------------------------------------------

PENUMBRA_LIBC_EARLY(Size, strlen, (const char* s), (s), raw_length(s), touch.text(s))
PENUMBRA_LIBC(Size, wcslen, (const Wide* s), (s), touch.text(s))
PENUMBRA_LIBC(Size, strnlen, (const char* s, Size most), (s, most), touch.text(s, most))
PENUMBRA_LIBC(Size, wcsnlen, (const Wide* s, Size most), (s, most), touch.text(s, most))

PENUMBRA_LIBC(char*, strcpy, (char* to, const char* from), (to, from), copy_text(touch, to, from))
PENUMBRA_LIBC(char*, stpcpy, (char* to, const char* from), (to, from), copy_text(touch, to, from))
PENUMBRA_LIBC(char*, __stpcpy, (char* to, const char* from), (to, from), copy_text(touch, to, from))
PENUMBRA_LIBC(Wide*, wcscpy, (Wide * to, const Wide* from), (to, from), copy_text(touch, to, from))
PENUMBRA_LIBC(Wide*, wcpcpy, (Wide * to, const Wide* from), (to, from), copy_text(touch, to, from))
PENUMBRA_LIBC(char*, __strcpy_chk, (char* to, const char* from, Size object), (to, from, object),
              copy_text(touch, to, from))
PENUMBRA_LIBC(char*, __stpcpy_chk, (char* to, const char* from, Size object), (to, from, object),
              copy_text(touch, to, from))
PENUMBRA_LIBC(Wide*, __wcscpy_chk, (Wide * to, const Wide* from, Size object), (to, from, object),
              copy_text(touch, to, from))
PENUMBRA_LIBC(Wide*, __wcpcpy_chk, (Wide * to, const Wide* from, Size object), (to, from, object),
              copy_text(touch, to, from))

PENUMBRA_LIBC(char*, strncpy, (char* to, const char* from, Size most), (to, from, most),
              copy_padded(touch, to, from, most))
PENUMBRA_LIBC(char*, stpncpy, (char* to, const char* from, Size most), (to, from, most),
              copy_padded(touch, to, from, most))
PENUMBRA_LIBC(char*, __stpncpy, (char* to, const char* from, Size most), (to, from, most),
              copy_padded(touch, to, from, most))
PENUMBRA_LIBC(Wide*, wcsncpy, (Wide * to, const Wide* from, Size most), (to, from, most),
              copy_padded(touch, to, from, most))
PENUMBRA_LIBC(Wide*, wcpncpy, (Wide * to, const Wide* from, Size most), (to, from, most),
              copy_padded(touch, to, from, most))
PENUMBRA_LIBC(char*, __strncpy_chk, (char* to, const char* from, Size most, Size object), (to, from, most, object),
              copy_padded(touch, to, from, most))
PENUMBRA_LIBC(char*, __stpncpy_chk, (char* to, const char* from, Size most, Size object), (to, from, most, object),
              copy_padded(touch, to, from, most))
PENUMBRA_LIBC(Wide*, __wcsncpy_chk, (Wide * to, const Wide* from, Size most, Size object), (to, from, most, object),
              copy_padded(touch, to, from, most))
PENUMBRA_LIBC(Wide*, __wcpncpy_chk, (Wide * to, const Wide* from, Size most, Size object), (to, from, most, object),
              copy_padded(touch, to, from, most))

PENUMBRA_LIBC(char*, strcat, (char* to, const char* from), (to, from), append_text(touch, to, from))
PENUMBRA_LIBC(Wide*, wcscat, (Wide * to, const Wide* from), (to, from), append_text(touch, to, from))
PENUMBRA_LIBC(char*, __strcat_chk, (char* to, const char* from, Size object), (to, from, object),
              append_text(touch, to, from))
PENUMBRA_LIBC(Wide*, __wcscat_chk, (Wide * to, const Wide* from, Size object), (to, from, object),
              append_text(touch, to, from))
PENUMBRA_LIBC(char*, strncat, (char* to, const char* from, Size most), (to, from, most),
              append_text(touch, to, from, most))
PENUMBRA_LIBC(Wide*, wcsncat, (Wide * to, const Wide* from, Size most), (to, from, most),
              append_text(touch, to, from, most))
PENUMBRA_LIBC(char*, __strncat_chk, (char* to, const char* from, Size most, Size object), (to, from, most, object),
              append_text(touch, to, from, most))
PENUMBRA_LIBC(Wide*, __wcsncat_chk, (Wide * to, const Wide* from, Size most, Size object), (to, from, most, object),
              append_text(touch, to, from, most))

// The copies themselves come from malloc inside libc, which is ours again.
PENUMBRA_LIBC(char*, strdup, (const char* s), (s), touch.text(s))
PENUMBRA_LIBC(char*, __strdup, (const char* s), (s), touch.text(s))
PENUMBRA_LIBC(Wide*, wcsdup, (const Wide* s), (s), touch.text(s))
PENUMBRA_LIBC(char*, strndup, (const char* s, Size most), (s, most), touch.text(s, most))
PENUMBRA_LIBC(char*, __strndup, (const char* s, Size most), (s, most), touch.text(s, most))

// --- Entry points: comparisons ------------------------------------------------------------------------------------

PENUMBRA_LIBC(int, strcmp, (const char* a, const char* b), (a, b), compare_texts(touch, a, b))
PENUMBRA_LIBC(int, wcscmp, (const Wide* a, const Wide* b), (a, b), compare_texts(touch, a, b))
PENUMBRA_LIBC(int, strncmp, (const char* a, const char* b, Size most), (a, b, most), compare_texts(touch, a, b, most))
PENUMBRA_LIBC(int, wcsncmp, (const Wide* a, const Wide* b, Size most), (a, b, most), compare_texts(touch, a, b, most))
PENUMBRA_LIBC(int, strverscmp, (const char* a, const char* b), (a, b), compare_texts(touch, a, b))
PENUMBRA_LIBC(int, __strverscmp, (const char* a, const char* b), (a, b), compare_texts(touch, a, b))

#define PENUMBRA_FOLDED(name, Char) \
  PENUMBRA_LIBC(int, name, (const Char* a, const Char* b), (a, b), compare_folded(touch, a, b, kNoLimit))
#define PENUMBRA_FOLDED_LIMITED(name, Char) \
  PENUMBRA_LIBC(int, name, (const Char* a, const Char* b, Size most), (a, b, most), compare_folded(touch, a, b, most))
#define PENUMBRA_FOLDED_IN(name, Char)                                                      \
  PENUMBRA_LIBC(int, name, (const Char* a, const Char* b, locale_t locale), (a, b, locale), \
                compare_folded(touch, a, b, kNoLimit, locale))
#define PENUMBRA_FOLDED_LIMITED_IN(name, Char)                                                               \
  PENUMBRA_LIBC(int, name, (const Char* a, const Char* b, Size most, locale_t locale), (a, b, most, locale), \
                compare_folded(touch, a, b, most, locale))
PENUMBRA_FOLDED(strcasecmp, char)
PENUMBRA_FOLDED(__strcasecmp, char)
PENUMBRA_FOLDED(wcscasecmp, Wide)
PENUMBRA_FOLDED_LIMITED(strncasecmp, char)
PENUMBRA_FOLDED_LIMITED(wcsncasecmp, Wide)
PENUMBRA_FOLDED_IN(strcasecmp_l, char)
PENUMBRA_FOLDED_IN(__strcasecmp_l, char)
PENUMBRA_FOLDED_IN(wcscasecmp_l, Wide)
PENUMBRA_FOLDED_IN(__wcscasecmp_l, Wide)
PENUMBRA_FOLDED_LIMITED_IN(strncasecmp_l, char)
PENUMBRA_FOLDED_LIMITED_IN(__strncasecmp_l, char)
PENUMBRA_FOLDED_LIMITED_IN(wcsncasecmp_l, Wide)
PENUMBRA_FOLDED_LIMITED_IN(__wcsncasecmp_l, Wide)

PENUMBRA_LIBC(int, strcoll, (const char* a, const char* b), (a, b), whole_texts(touch, a, b))
PENUMBRA_LIBC(int, wcscoll, (const Wide* a, const Wide* b), (a, b), whole_texts(touch, a, b))
#define PENUMBRA_COLLATED_IN(name, Char) \
  PENUMBRA_LIBC(int, name, (const Char* a, const Char* b, locale_t locale), (a, b, locale), whole_texts(touch, a, b))
PENUMBRA_COLLATED_IN(strcoll_l, char)
PENUMBRA_COLLATED_IN(__strcoll_l, char)
PENUMBRA_COLLATED_IN(wcscoll_l, Wide)
PENUMBRA_COLLATED_IN(__wcscoll_l, Wide)

PENUMBRA_LIBC_CALL(Size, strxfrm, (char* to, const char* from, Size most), (to, from, most), touch.text(from),
                   transformed(touch, to, result, most))
PENUMBRA_LIBC_CALL(Size, wcsxfrm, (Wide * to, const Wide* from, Size most), (to, from, most), touch.text(from),
                   transformed(touch, to, result, most))
#define PENUMBRA_TRANSFORMED_IN(name, Char)                                                 \
  PENUMBRA_LIBC_CALL(Size, name, (Char * to, const Char* from, Size most, locale_t locale), \
                     (to, from, most, locale), touch.text(from), transformed(touch, to, result, most))
PENUMBRA_TRANSFORMED_IN(strxfrm_l, char)
PENUMBRA_TRANSFORMED_IN(__strxfrm_l, char)
PENUMBRA_TRANSFORMED_IN(wcsxfrm_l, Wide)
PENUMBRA_TRANSFORMED_IN(__wcsxfrm_l, Wide)

// --- Entry points: searches ---------------------------------------------------------------------------------------

PENUMBRA_LIBC(char*, strchr, (const char* s, int c), (s, c), touch.text_until(s, static_cast<char>(c)))
PENUMBRA_LIBC(char*, index, (const char* s, int c), (s, c), touch.text_until(s, static_cast<char>(c)))
PENUMBRA_LIBC(char*, strchrnul, (const char* s, int c), (s, c), touch.text_until(s, static_cast<char>(c)))
PENUMBRA_LIBC(Wide*, wcschr, (const Wide* s, Wide c), (s, c), touch.text_until(s, c))
PENUMBRA_LIBC(Wide*, wcschrnul, (const Wide* s, Wide c), (s, c), touch.text_until(s, c))
PENUMBRA_LIBC(char*, strrchr, (const char* s, int c), (s, c), touch.text(s))
PENUMBRA_LIBC(char*, rindex, (const char* s, int c), (s, c), touch.text(s))
PENUMBRA_LIBC(Wide*, wcsrchr, (const Wide* s, Wide c), (s, c), touch.text(s))

PENUMBRA_LIBC(char*, strstr, (const char* hay, const char* needle), (hay, needle), find_text(touch, hay, needle))
PENUMBRA_LIBC(Wide*, wcsstr, (const Wide* hay, const Wide* needle), (hay, needle), find_text(touch, hay, needle))
PENUMBRA_LIBC(Wide*, wcswcs, (const Wide* hay, const Wide* needle), (hay, needle), find_text(touch, hay, needle))
PENUMBRA_LIBC(char*, strcasestr, (const char* hay, const char* needle), (hay, needle),
              find_folded(touch, hay, needle))
PENUMBRA_LIBC(char*, __strcasestr, (const char* hay, const char* needle), (hay, needle),
              find_folded(touch, hay, needle))

PENUMBRA_LIBC(Size, strspn, (const char* s, const char* set), (s, set), span(touch, s, read_set(touch, set)))
PENUMBRA_LIBC(Size, wcsspn, (const Wide* s, const Wide* set), (s, set), span(touch, s, read_set(touch, set)))
PENUMBRA_LIBC(Size, strcspn, (const char* s, const char* set), (s, set), span_until(touch, s, read_set(touch, set)))
PENUMBRA_LIBC(Size, wcscspn, (const Wide* s, const Wide* set), (s, set), span_until(touch, s, read_set(touch, set)))
PENUMBRA_LIBC(char*, strpbrk, (const char* s, const char* set), (s, set), span_until(touch, s, read_set(touch, set)))
PENUMBRA_LIBC(Wide*, wcspbrk, (const Wide* s, const Wide* set), (s, set), span_until(touch, s, read_set(touch, set)))

// --- Entry points: tokens -----------------------------------------------------------------------------------------

PENUMBRA_LIBC(char*, strtok_r, (char* s, const char* delimiters, char** save), (s, delimiters, save),
              next_token(touch, s, delimiters, save))
PENUMBRA_LIBC(char*, __strtok_r, (char* s, const char* delimiters, char** save), (s, delimiters, save),
              next_token(touch, s, delimiters, save))
PENUMBRA_LIBC(Wide*, wcstok, (Wide * s, const Wide* delimiters, Wide** save), (s, delimiters, save),
              next_token(touch, s, delimiters, save))
PENUMBRA_LIBC(char*, strsep, (char** s, const char* delimiters), (s, delimiters), split_token(touch, s, delimiters))

// Where libc's strtok stands in its text is hidden, so ours keeps the place and asks strtok_r; like libc's it is one
// place for the whole process.
PENUMBRA_LIBC_DECLARE(char*, strtok, (char* s, const char* delimiters))

char* entry_strtok(char* s, const char* delimiters) {
  static constinit char* place = nullptr;
  if (real_strtok_r.is_checked_here()) [[likely]] {
    next_token(Touch("strtok", __builtin_frame_address(0)), s, delimiters, &place);
  }
  return real_strtok_r(s, delimiters, &place);
}

}  // namespace penumbra::libc
