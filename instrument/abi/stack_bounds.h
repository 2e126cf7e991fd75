// Which stack does an address lie on, and where does that stack begin and end?
//
//     own        the stack the kernel or pthread_create gave this thread; looked up once, then kept per thread
//     alternate  the thread's sigaltstack, while it is in use
//     unknown    anything else (a coroutine's): the mapping around it, of which only a part is the stack
//
// The main thread's stack ends at __libc_stack_end. glibc puts a thread's control block at the top of its stack, so
// any other thread's ends at its thread pointer. Lower ends come from the stack limit and from /proc/self/maps.
//
// zone: signal-safe
#pragma once

#include "runtime/base/address.h"

namespace penumbra::abi {

enum class StackKind : unsigned char { kOwn, kAlternate, kUnknown, kNone };

struct Stack {
  StackKind kind = StackKind::kNone;  // kNone: not even a mapping was found
  AppRange range;

  bool contains(AppAddr a) const { return kind != StackKind::kNone && range.contains(a); }
};

Stack stack_around(AppAddr sp);
// This thread's own stack, also while it runs on another one. kNone where it cannot be told.
Stack own_stack();
// The lowest address of this thread's own stack, from someone who knows: spares the look-up.
void set_own_stack(AppAddr low);
// Has it been told, or looked up?
bool knows_own_stack();
// The thread runs on another stack from now on (a fiber's), which then is its own.
void enter_stack(const Stack& stack);

}  // namespace penumbra::abi
