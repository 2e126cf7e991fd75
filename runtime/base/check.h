// Checks of our own state, on in every build: both values, one write, trap.
//
// A failed check means Penumbra itself is wrong, never the program under test (that is a Fault, see fault.h).
// The message is built without malloc, locks or stdio, so a check may fail anywhere, inside a report as well.
//
// zone: signal-safe
#pragma once

#include <cstdint>

namespace penumbra {

[[noreturn]] void check_failed(const char* file, int line, const char* expression);
[[noreturn]] void check_op_failed(const char* file, int line, const char* expression, std::uint64_t left,
                                  std::uint64_t right);
// The kernel said no and there is no other way: says what, at which address, how many bytes, and the errno.
[[noreturn]] void die_errno(const char* what, std::uintptr_t address, std::uintptr_t bytes, int error);

}  // namespace penumbra

#define PENUMBRA_CHECK(condition)                               \
  do {                                                          \
    if (__builtin_expect(!(condition), 0)) {                    \
      ::penumbra::check_failed(__FILE__, __LINE__, #condition); \
    }                                                           \
  } while (false)

#define PENUMBRA_CHECK_OP(a, op, b)                                                                    \
  do {                                                                                                 \
    const auto penumbra_left = (a);                                                                    \
    const auto penumbra_right = (b);                                                                   \
    if (__builtin_expect(!(penumbra_left op penumbra_right), 0)) {                                     \
      ::penumbra::check_op_failed(__FILE__, __LINE__, #a " " #op " " #b, (std::uint64_t)penumbra_left, \
                                  (std::uint64_t)penumbra_right);                                      \
    }                                                                                                  \
  } while (false)

// Checked in validating builds only; the operands stay used, so no warning appears when it is off.
#if PENUMBRA_VALIDATE > 0
#define PENUMBRA_DCHECK(condition) PENUMBRA_CHECK(condition)
#else
#define PENUMBRA_DCHECK(condition) ((void)sizeof(!(condition)))
#endif
