// How an interposed libc entry point is written: one line that says what the call touches.
//
//     PENUMBRA_LIBC(char*, strcpy, (char* to, const char* from), (to, from), string_copy(touch, to, from))
//
// defines the exported `strcpy`, which checks and then calls on to the definition that the program would have got
// without us. The C++ name is entry_strcpy (its assembler name is strcpy), so that libc's own declarations, overloads
// and inline versions never interfere. A slot in the section `penumbra_real` names each function; init() fills all
// of them, and a call that comes before fills its own.
//
// Editing rules. An entry may run before this library is relocated, in a signal handler, in a vfork child and in a
// thread that is not set up: no static state, no lock, no call that is not resolved at link time before checks_on().
// The compiler must not make up calls of memcpy in these files (-fno-tree-loop-distribute-patterns, no large copies):
// such a call would come back here.
//
// zone: signal-safe
#pragma once

#include <cstddef>

#include "instrument/libc/state.h"
#include "instrument/libc/touch.h"

namespace penumbra::libc {

struct RealSlot {
  const char* name;
  void* function;
  void (*own)();       // our entry point of that name, whoever else defines one
  bool checks_itself;  // the function's own code is checked: see rewritten.h
};

// Asks the loader; ends the process with one line when nobody defines the function.
void* resolve(RealSlot& slot);

// The next definition of a function, as something to call.
template <class Function>
struct Real : RealSlot {
  template <class... Args>
  [[gnu::always_inline]] auto operator()(Args... args) {
    void* target = function;
    if (target == nullptr) [[unlikely]]
      target = resolve(*this);
    return reinterpret_cast<Function*>(target)(args...);
  }
  bool is_resolved() const { return function != nullptr; }
  bool is_checked_here() const { return checks_on() && !checks_itself; }
};

}  // namespace penumbra::libc

#define PENUMBRA_LIBC_DECLARE(result, name, parameters)                                                              \
  extern "C" void penumbra_own_##name();                                                                             \
  __asm__(".globl penumbra_own_" #name "\n.hidden penumbra_own_" #name "\n.set penumbra_own_" #name ", " #name);     \
  extern "C" __attribute__((visibility("default"))) result entry_##name parameters __asm__(#name);                   \
  [[gnu::section("penumbra_real"), gnu::used]] constinit ::penumbra::libc::Real<decltype(entry_##name)> real_##name{ \
      {#name, nullptr, penumbra_own_##name, false}};

// Checks, then calls on. `touch` is the Touch of the call.
#define PENUMBRA_LIBC(result, name, parameters, arguments, ...)               \
  PENUMBRA_LIBC_DECLARE(result, name, parameters)                             \
  result entry_##name parameters {                                            \
    if (real_##name.is_checked_here()) [[likely]] {                           \
      const ::penumbra::libc::Touch touch(#name, __builtin_frame_address(0)); \
      __VA_ARGS__;                                                            \
    }                                                                         \
    return real_##name arguments;                                             \
  }

// The same for what loaders and resolvers call before anything is set up: `early` stands in for the real function.
#define PENUMBRA_LIBC_EARLY(result, name, parameters, arguments, early, ...)  \
  PENUMBRA_LIBC_DECLARE(result, name, parameters)                             \
  result entry_##name parameters {                                            \
    if (real_##name.is_checked_here()) [[likely]] {                           \
      const ::penumbra::libc::Touch touch(#name, __builtin_frame_address(0)); \
      __VA_ARGS__;                                                            \
    } else if (!real_##name.is_resolved()) {                                  \
      return early;                                                           \
    }                                                                         \
    return real_##name arguments;                                             \
  }

// Checks `before`, calls on, then checks `after`, which may look at `result`.
#define PENUMBRA_LIBC_CALL(type, name, parameters, arguments, before, after) \
  PENUMBRA_LIBC_DECLARE(type, name, parameters)                              \
  type entry_##name parameters {                                             \
    if (!real_##name.is_checked_here()) [[unlikely]] {                       \
      return real_##name arguments;                                          \
    }                                                                        \
    const ::penumbra::libc::Touch touch(#name, __builtin_frame_address(0));  \
    before;                                                                  \
    type const result = real_##name arguments;                               \
    after;                                                                   \
    return result;                                                           \
  }
