#include "tests/libc/text_calls.h"

#include <locale.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <wchar.h>

#include <cstdlib>

// Fortified forms and old names that no header declares.
extern "C" {
void* __memcpy_chk(void*, const void*, size_t, size_t);
void* __memmove_chk(void*, const void*, size_t, size_t);
void* __mempcpy_chk(void*, const void*, size_t, size_t);
void* __memset_chk(void*, int, size_t, size_t);
void __explicit_bzero_chk(void*, size_t, size_t);
void __bzero(void*, size_t);
int __memcmpeq(const void*, const void*, size_t);
void* __rawmemchr(const void*, int);
char* __strcpy_chk(char*, const char*, size_t);
char* __stpcpy_chk(char*, const char*, size_t);
char* __strncpy_chk(char*, const char*, size_t, size_t);
char* __stpncpy_chk(char*, const char*, size_t, size_t);
char* __strcat_chk(char*, const char*, size_t);
char* __strncat_chk(char*, const char*, size_t, size_t);
char* __strdup(const char*);
char* __strndup(const char*, size_t);
char* __strcasestr(const char*, const char*);
int __strcasecmp(const char*, const char*);
int __strcasecmp_l(const char*, const char*, locale_t);
int __strncasecmp_l(const char*, const char*, size_t, locale_t);
int __strcoll_l(const char*, const char*, locale_t);
size_t __strxfrm_l(char*, const char*, size_t, locale_t);
int __strverscmp(const char*, const char*);
wchar_t* __wmemcpy_chk(wchar_t*, const wchar_t*, size_t, size_t);
wchar_t* __wmemmove_chk(wchar_t*, const wchar_t*, size_t, size_t);
wchar_t* __wmempcpy_chk(wchar_t*, const wchar_t*, size_t, size_t);
wchar_t* __wmemset_chk(wchar_t*, wchar_t, size_t, size_t);
wchar_t* __wcscpy_chk(wchar_t*, const wchar_t*, size_t);
wchar_t* __wcpcpy_chk(wchar_t*, const wchar_t*, size_t);
wchar_t* __wcsncpy_chk(wchar_t*, const wchar_t*, size_t, size_t);
wchar_t* __wcpncpy_chk(wchar_t*, const wchar_t*, size_t, size_t);
wchar_t* __wcscat_chk(wchar_t*, const wchar_t*, size_t);
wchar_t* __wcsncat_chk(wchar_t*, const wchar_t*, size_t, size_t);
int __wcscasecmp_l(const wchar_t*, const wchar_t*, locale_t);
int __wcsncasecmp_l(const wchar_t*, const wchar_t*, size_t, locale_t);
int __wcscoll_l(const wchar_t*, const wchar_t*, locale_t);
size_t __wcsxfrm_l(wchar_t*, const wchar_t*, size_t, locale_t);
}

namespace penumbra::libc::testing {
namespace {

// What gcc passes for an object of unknown size; clang, where it sees this value, calls the plain function instead.
const volatile std::size_t kAny = ~std::size_t{0};
constexpr std::size_t kRoom = 16384;

volatile std::size_t sink;

template <class T>
void use(T value) {
  sink = (std::size_t)value;
}

// Accessible memory beside the block. The arguments of a call are made in it: all 'y', or a text of `length`.
template <class Char>
Char* other() {
  alignas(16) static Char buffer[kRoom];
  return buffer;
}

template <class Char>
Char* filled(Char* p, std::size_t count, Char c) {
  for (std::size_t i = 0; i < count; ++i) p[i] = c;
  return p;
}

// [p, p+count) becomes a text: count - 1 characters and the terminator.
template <class Char>
Char* text(Char* p, std::size_t count) {
  filled(p, count - 1, Char('x'));
  p[count - 1] = Char{};
  return p;
}

template <class Char>
Char* other_text(std::size_t count) {
  return text(other<Char>(), count);
}

// <cstring> turns a search for one character into strchr, even without builtins.
const char* find(const char* hay, const char* needle) {
  static const char* (*volatile const function)(const char*, const char*) = strstr;
  return function(hay, needle);
}

wchar_t* wide(char* p) {
  return reinterpret_cast<wchar_t*>(p);
}

locale_t c_locale() {
  static const locale_t locale = newlocale(LC_ALL_MASK, "C", nullptr);
  return locale;
}

#define READ(name, ...)                                          \
  {                                                              \
#name, false, 1, [](char* p, std::size_t n) { __VA_ARGS__; } \
  }
#define WRITE(name, ...)                                        \
  {                                                             \
#name, true, 1, [](char* p, std::size_t n) { __VA_ARGS__; } \
  }
#define WREAD(name, ...)                                                                                       \
  {                                                                                                            \
#name, false, sizeof(wchar_t), [](char* bytes, std::size_t n) { wchar_t* const p = wide(bytes); __VA_ARGS__; } \
  }
#define WWRITE(name, ...)                                                                                     \
  {                                                                                                           \
#name, true, sizeof(wchar_t), [](char* bytes, std::size_t n) { wchar_t* const p = wide(bytes); __VA_ARGS__; } \
  }

const auto o = [] { return other<char>(); };
const auto w = [] { return other<wchar_t>(); };
const auto ot = [](std::size_t n) { return other_text<char>(n); };
const auto wt = [](std::size_t n) { return other_text<wchar_t>(n); };

const TextCall kCalls[] = {
    // mem*
    READ(memcpy, memcpy(o(), p, n)),
    WRITE(memcpy, memcpy(p, o(), n)),
    READ(memmove, memmove(o(), p, n)),
    WRITE(memmove, memmove(p, o(), n)),
    READ(mempcpy, use(mempcpy(o(), p, n))),
    WRITE(mempcpy, use(mempcpy(p, o(), n))),
    READ(__mempcpy, use(__mempcpy(o(), p, n))),
    WRITE(__mempcpy, use(__mempcpy(p, o(), n))),
    READ(__memcpy_chk, __memcpy_chk(o(), p, n, kAny)),
    WRITE(__memcpy_chk, __memcpy_chk(p, o(), n, kAny)),
    READ(__memmove_chk, __memmove_chk(o(), p, n, kAny)),
    WRITE(__memmove_chk, __memmove_chk(p, o(), n, kAny)),
    READ(__mempcpy_chk, __mempcpy_chk(o(), p, n, kAny)),
    WRITE(__mempcpy_chk, __mempcpy_chk(p, o(), n, kAny)),
    READ(bcopy, bcopy(p, o(), n)),
    WRITE(bcopy, bcopy(o(), p, n)),
    WRITE(memset, memset(p, 'x', n)),
    WRITE(__memset_chk, __memset_chk(p, 'x', n, kAny)),
    WRITE(bzero, bzero(p, n)),
    WRITE(__bzero, __bzero(p, n)),
    WRITE(explicit_bzero, explicit_bzero(p, n)),
    WRITE(__explicit_bzero_chk, __explicit_bzero_chk(p, n, kAny)),
    WRITE(memfrob, memfrob(p, n)),
    READ(memcmp, use(memcmp(p, filled(o(), n, 'x'), n))),
    READ(memcmp, use(memcmp(filled(o(), n, 'x'), p, n))),
    READ(bcmp, use(bcmp(p, o(), n))),
    READ(bcmp, use(bcmp(o(), p, n))),
    READ(__memcmpeq, use(__memcmpeq(p, o(), n))),
    READ(__memcmpeq, use(__memcmpeq(o(), p, n))),
    // The hit is the last byte: what lies behind it is never read.
    READ(memchr, filled(p, n, 'x')[n - 1] = 'h'; use(memchr(p, 'h', n + 100))),
    READ(memchr, filled(p, n, 'x'); use(memchr(p, 'h', n))),
    READ(rawmemchr, filled(p, n, 'x')[n - 1] = 'h'; use(rawmemchr(p, 'h'))),
    READ(__rawmemchr, filled(p, n, 'x')[n - 1] = 'h'; use(__rawmemchr(p, 'h'))),
    READ(memccpy, filled(p, n, 'x')[n - 1] = 'h'; use(memccpy(o(), p, 'h', n + 100))),
    READ(memccpy, filled(p, n, 'x'); use(memccpy(o(), p, 'h', n))),
    WRITE(memccpy, filled(o(), n, 'y')[n - 1] = 'h'; use(memccpy(p, o(), 'h', n + 100))),
    READ(memmem, filled(p, n, 'x')[n - 1] = 'h'; use(memmem(p, n + 100, "h", 1))),
    READ(memmem, filled(p, n, 'x'); use(memmem(p, n, "h", 1))),
    READ(memmem, filled(p, n, 'x'); use(memmem(o(), kRoom, p, n))),

    // str*
    READ(strlen, use(strlen(text(p, n)))),
    READ(strnlen, use(strnlen(text(p, n), n + 100))),
    READ(strnlen, filled(p, n, 'x'); use(strnlen(p, n))),
    READ(strcpy, strcpy(o(), text(p, n))),
    WRITE(strcpy, strcpy(p, ot(n))),
    READ(stpcpy, use(stpcpy(o(), text(p, n)))),
    WRITE(stpcpy, use(stpcpy(p, ot(n)))),
    READ(__stpcpy, use(__stpcpy(o(), text(p, n)))),
    WRITE(__stpcpy, use(__stpcpy(p, ot(n)))),
    READ(__strcpy_chk, __strcpy_chk(o(), text(p, n), kAny)),
    WRITE(__strcpy_chk, __strcpy_chk(p, ot(n), kAny)),
    READ(__stpcpy_chk, __stpcpy_chk(o(), text(p, n), kAny)),
    WRITE(__stpcpy_chk, __stpcpy_chk(p, ot(n), kAny)),
    READ(strncpy, use(strncpy(o(), text(p, n), n + 100))),
    READ(strncpy, filled(p, n, 'x'); use(strncpy(o(), p, n))),
    WRITE(strncpy, use(strncpy(p, ot(1), n))),
    READ(stpncpy, use(stpncpy(o(), text(p, n), n + 100))),
    WRITE(stpncpy, use(stpncpy(p, ot(1), n))),
    READ(__stpncpy, use(__stpncpy(o(), text(p, n), n + 100))),
    WRITE(__stpncpy, use(__stpncpy(p, ot(1), n))),
    READ(__strncpy_chk, __strncpy_chk(o(), text(p, n), n + 100, kAny)),
    WRITE(__strncpy_chk, __strncpy_chk(p, ot(1), n, kAny)),
    READ(__stpncpy_chk, __stpncpy_chk(o(), text(p, n), n + 100, kAny)),
    WRITE(__stpncpy_chk, __stpncpy_chk(p, ot(1), n, kAny)),
    READ(strcat, strcat(ot(1), text(p, n))),
    READ(strcat, strcat(text(p, n), "")),
    WRITE(strcat, p[0] = '\0'; strcat(p, ot(n))),
    READ(__strcat_chk, __strcat_chk(ot(1), text(p, n), kAny)),
    WRITE(__strcat_chk, p[0] = '\0'; __strcat_chk(p, ot(n), kAny)),
    READ(strncat, strncat(ot(1), text(p, n), n + 100)),
    READ(strncat, filled(p, n, 'x'); strncat(ot(1), p, n)),
    WRITE(strncat, p[0] = '\0'; filled(o(), n + 1, 'y'); strncat(p, o(), n - 1)),
    READ(__strncat_chk, __strncat_chk(ot(1), text(p, n), n + 100, kAny)),
    WRITE(__strncat_chk, p[0] = '\0'; filled(o(), n + 1, 'y'); __strncat_chk(p, o(), n - 1, kAny)),
    READ(strdup, free(strdup(text(p, n)))),
    READ(__strdup, free(__strdup(text(p, n)))),
    READ(strndup, free(strndup(text(p, n), n + 100))),
    READ(strndup, filled(p, n, 'x'); free(strndup(p, n))),
    READ(__strndup, free(__strndup(text(p, n), n + 100))),

    READ(strcmp, use(strcmp(text(p, n), ot(n)))),
    READ(strcmp, use(strcmp(ot(n), text(p, n)))),
    READ(strcmp, filled(p, n, 'x'); use(strcmp(p, ot(n)))),  // they differ at the other's terminator
    READ(strncmp, use(strncmp(text(p, n), ot(n), n + 100))),
    READ(strncmp, filled(p, n, 'x'); use(strncmp(p, filled(o(), n, 'x'), n))),
    READ(strncmp, filled(p, n, 'x'); use(strncmp(filled(o(), n, 'x'), p, n))),
    READ(strverscmp, use(strverscmp(text(p, n), ot(n)))),
    READ(__strverscmp, use(__strverscmp(text(p, n), ot(n)))),
    READ(strcasecmp, filled(text(p, n), n - 1, 'X'); use(strcasecmp(p, ot(n)))),
    READ(strcasecmp, use(strcasecmp(ot(n), text(p, n)))),
    READ(__strcasecmp, use(__strcasecmp(text(p, n), ot(n)))),
    READ(strncasecmp, filled(p, n, 'X'); use(strncasecmp(p, filled(o(), n, 'x'), n))),
    READ(strcasecmp_l, use(strcasecmp_l(text(p, n), ot(n), c_locale()))),
    READ(__strcasecmp_l, use(__strcasecmp_l(text(p, n), ot(n), c_locale()))),
    READ(strncasecmp_l, filled(p, n, 'X'); use(strncasecmp_l(p, filled(o(), n, 'x'), n, c_locale()))),
    READ(__strncasecmp_l, filled(p, n, 'X'); use(__strncasecmp_l(p, filled(o(), n, 'x'), n, c_locale()))),
    READ(strcoll, use(strcoll(text(p, n), ot(1)))),
    READ(strcoll, use(strcoll(ot(1), text(p, n)))),
    READ(strcoll_l, use(strcoll_l(text(p, n), ot(1), c_locale()))),
    READ(__strcoll_l, use(__strcoll_l(text(p, n), ot(1), c_locale()))),
    READ(strxfrm, use(strxfrm(o(), text(p, n), kRoom))),
    WRITE(strxfrm, use(strxfrm(p, ot(n), kRoom))),
    READ(strxfrm_l, use(strxfrm_l(o(), text(p, n), kRoom, c_locale()))),
    WRITE(strxfrm_l, use(strxfrm_l(p, ot(n), kRoom, c_locale()))),
    READ(__strxfrm_l, use(__strxfrm_l(o(), text(p, n), kRoom, c_locale()))),
    WRITE(__strxfrm_l, use(__strxfrm_l(p, ot(n), kRoom, c_locale()))),

    READ(strchr, filled(p, n, 'x')[n - 1] = 'h'; use(strchr(p, 'h'))),
    READ(strchr, use(strchr(text(p, n), 'h'))),
    READ(index, filled(p, n, 'x')[n - 1] = 'h'; use(index(p, 'h'))),
    READ(strchrnul, filled(p, n, 'x')[n - 1] = 'h'; use(strchrnul(p, 'h'))),
    READ(strrchr, use(strrchr(text(p, n), 'h'))),
    READ(rindex, use(rindex(text(p, n), 'h'))),
    READ(strstr, filled(p, n, 'x')[n - 1] = 'h'; use(find(p, "h"))),
    READ(strstr, use(find(text(p, n), "h"))),
    READ(strstr, use(find(ot(kRoom), text(p, n)))),
    READ(strcasestr, filled(p, n, 'x')[n - 1] = 'h'; use(strcasestr(p, "H"))),
    READ(strcasestr, use(strcasestr(ot(100), text(p, n)))),
    READ(__strcasestr, filled(p, n, 'x')[n - 1] = 'h'; use(__strcasestr(p, "H"))),
    READ(strspn, filled(p, n, 'x')[n - 1] = 'h'; use(strspn(p, "xy"))),
    READ(strspn, use(strspn("x", text(p, n)))),
    READ(strcspn, filled(p, n, 'x')[n - 1] = 'h'; use(strcspn(p, "gh"))),
    READ(strcspn, use(strcspn("x", text(p, n)))),
    READ(strpbrk, filled(p, n, 'x')[n - 1] = 'h'; use(strpbrk(p, "gh"))),
    READ(strpbrk, use(strpbrk("a", text(p, n)))),
    READ(strtok, use(strtok(text(p, n), ","))),
    READ(strtok, use(strtok(ot(9), text(p, n)))),
    READ(strtok_r, char* save; use(strtok_r(text(p, n), ",", &save))),
    READ(strtok_r, char* save; filled(p, n, ',')[n - 1] = '\0'; use(strtok_r(p, ",", &save))),
    READ(__strtok_r, char* save; use(__strtok_r(text(p, n), ",", &save))),
    READ(strsep, char* s = text(p, n); use(strsep(&s, ","))),

    // wmem*
    WREAD(wmemcpy, wmemcpy(w(), p, n)),
    WWRITE(wmemcpy, wmemcpy(p, w(), n)),
    WREAD(wmemmove, wmemmove(w(), p, n)),
    WWRITE(wmemmove, wmemmove(p, w(), n)),
    WREAD(wmempcpy, use(wmempcpy(w(), p, n))),
    WWRITE(wmempcpy, use(wmempcpy(p, w(), n))),
    WREAD(__wmemcpy_chk, __wmemcpy_chk(w(), p, n, kAny)),
    WWRITE(__wmemcpy_chk, __wmemcpy_chk(p, w(), n, kAny)),
    WREAD(__wmemmove_chk, __wmemmove_chk(w(), p, n, kAny)),
    WWRITE(__wmemmove_chk, __wmemmove_chk(p, w(), n, kAny)),
    WREAD(__wmempcpy_chk, __wmempcpy_chk(w(), p, n, kAny)),
    WWRITE(__wmempcpy_chk, __wmempcpy_chk(p, w(), n, kAny)),
    WWRITE(wmemset, wmemset(p, L'x', n)),
    WWRITE(__wmemset_chk, __wmemset_chk(p, L'x', n, kAny)),
    WREAD(wmemcmp, use(wmemcmp(p, w(), n))),
    WREAD(wmemcmp, use(wmemcmp(w(), p, n))),
    WREAD(wmemchr, filled(p, n, L'x')[n - 1] = L'h'; use(wmemchr(p, L'h', n + 100))),

    // wcs*
    WREAD(wcslen, use(wcslen(text(p, n)))),
    WREAD(wcsnlen, use(wcsnlen(text(p, n), n + 100))),
    WREAD(wcsnlen, filled(p, n, L'x'); use(wcsnlen(p, n))),
    WREAD(wcscpy, wcscpy(w(), text(p, n))),
    WWRITE(wcscpy, wcscpy(p, wt(n))),
    WREAD(wcpcpy, use(wcpcpy(w(), text(p, n)))),
    WWRITE(wcpcpy, use(wcpcpy(p, wt(n)))),
    WREAD(__wcscpy_chk, __wcscpy_chk(w(), text(p, n), kAny)),
    WWRITE(__wcscpy_chk, __wcscpy_chk(p, wt(n), kAny)),
    WREAD(__wcpcpy_chk, __wcpcpy_chk(w(), text(p, n), kAny)),
    WWRITE(__wcpcpy_chk, __wcpcpy_chk(p, wt(n), kAny)),
    WREAD(wcsncpy, use(wcsncpy(w(), text(p, n), n + 100))),
    WWRITE(wcsncpy, use(wcsncpy(p, wt(1), n))),
    WREAD(wcpncpy, use(wcpncpy(w(), text(p, n), n + 100))),
    WWRITE(wcpncpy, use(wcpncpy(p, wt(1), n))),
    WREAD(__wcsncpy_chk, __wcsncpy_chk(w(), text(p, n), n + 100, kAny)),
    WWRITE(__wcsncpy_chk, __wcsncpy_chk(p, wt(1), n, kAny)),
    WREAD(__wcpncpy_chk, __wcpncpy_chk(w(), text(p, n), n + 100, kAny)),
    WWRITE(__wcpncpy_chk, __wcpncpy_chk(p, wt(1), n, kAny)),
    WREAD(wcscat, wcscat(wt(1), text(p, n))),
    WWRITE(wcscat, p[0] = L'\0'; wcscat(p, wt(n))),
    WREAD(__wcscat_chk, __wcscat_chk(wt(1), text(p, n), kAny)),
    WWRITE(__wcscat_chk, p[0] = L'\0'; __wcscat_chk(p, wt(n), kAny)),
    WREAD(wcsncat, wcsncat(wt(1), text(p, n), n + 100)),
    WWRITE(wcsncat, p[0] = L'\0'; filled(w(), n + 1, L'y'); wcsncat(p, w(), n - 1)),
    WREAD(__wcsncat_chk, __wcsncat_chk(wt(1), text(p, n), n + 100, kAny)),
    WWRITE(__wcsncat_chk, p[0] = L'\0'; filled(w(), n + 1, L'y'); __wcsncat_chk(p, w(), n - 1, kAny)),
    WREAD(wcsdup, free(wcsdup(text(p, n)))),
    WREAD(wcscmp, use(wcscmp(text(p, n), wt(n)))),
    WREAD(wcscmp, use(wcscmp(wt(n), text(p, n)))),
    WREAD(wcsncmp, filled(p, n, L'x'); use(wcsncmp(p, filled(w(), n, L'x'), n))),
    WREAD(wcscasecmp, filled(text(p, n), n - 1, L'X'); use(wcscasecmp(p, wt(n)))),
    WREAD(wcsncasecmp, filled(p, n, L'X'); use(wcsncasecmp(p, filled(w(), n, L'x'), n))),
    WREAD(wcscasecmp_l, use(wcscasecmp_l(text(p, n), wt(n), c_locale()))),
    WREAD(__wcscasecmp_l, use(__wcscasecmp_l(text(p, n), wt(n), c_locale()))),
    WREAD(wcsncasecmp_l, filled(p, n, L'X'); use(wcsncasecmp_l(p, filled(w(), n, L'x'), n, c_locale()))),
    WREAD(__wcsncasecmp_l, filled(p, n, L'X'); use(__wcsncasecmp_l(p, filled(w(), n, L'x'), n, c_locale()))),
    WREAD(wcscoll, use(wcscoll(text(p, n), wt(1)))),
    WREAD(wcscoll_l, use(wcscoll_l(text(p, n), wt(1), c_locale()))),
    WREAD(__wcscoll_l, use(__wcscoll_l(text(p, n), wt(1), c_locale()))),
    WREAD(wcsxfrm, use(wcsxfrm(w(), text(p, n), kRoom))),
    WWRITE(wcsxfrm, use(wcsxfrm(p, wt(n), kRoom))),
    WREAD(wcsxfrm_l, use(wcsxfrm_l(w(), text(p, n), kRoom, c_locale()))),
    WREAD(__wcsxfrm_l, use(__wcsxfrm_l(w(), text(p, n), kRoom, c_locale()))),
    WREAD(wcschr, filled(p, n, L'x')[n - 1] = L'h'; use(wcschr(p, L'h'))),
    WREAD(wcschrnul, filled(p, n, L'x')[n - 1] = L'h'; use(wcschrnul(p, L'h'))),
    WREAD(wcsrchr, use(wcsrchr(text(p, n), L'h'))),
    WREAD(wcsstr, filled(p, n, L'x')[n - 1] = L'h'; use(wcsstr(p, L"h"))),
    WREAD(wcsstr, use(wcsstr(wt(100), text(p, n)))),
    WREAD(wcswcs, filled(p, n, L'x')[n - 1] = L'h'; use(const_cast<const wchar_t*>(wcswcs(p, L"h")))),
    WREAD(wcsspn, filled(p, n, L'x')[n - 1] = L'h'; use(wcsspn(p, L"xy"))),
    WREAD(wcscspn, filled(p, n, L'x')[n - 1] = L'h'; use(wcscspn(p, L"gh"))),
    WREAD(wcspbrk, filled(p, n, L'x')[n - 1] = L'h'; use(wcspbrk(p, L"gh"))),
    WREAD(wcstok, wchar_t* save; use(wcstok(text(p, n), L",", &save))),
};

}  // namespace

std::span<const TextCall> text_calls() {
  return kCalls;
}

}  // namespace penumbra::libc::testing
