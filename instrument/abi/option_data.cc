// Data that compiled code reads instead of calling: the shadow's base where it is not baked in, and the answer to
// whether frames shall be taken from a fake stack.
//
// zone: signal-safe
#include <cstdint>

#include "runtime/base/export.h"
#include "shadow/encoding.h"

// clang's -asan-force-dynamic-shadow adds this to every shifted address.
PENUMBRA_EXPORT constinit std::uintptr_t __asan_shadow_memory_dynamic_address;
constinit std::uintptr_t __asan_shadow_memory_dynamic_address = penumbra::shadow::kShadowOffset;

// No: use-after-return is not looked for, and __asan_stack_malloc_N would answer "none" anyway.
PENUMBRA_EXPORT int __asan_option_detect_stack_use_after_return;
int __asan_option_detect_stack_use_after_return = 0;
