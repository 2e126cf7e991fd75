#include "instrument/abi/stack.h"

#include "instrument/abi/compiled.h"
#include "instrument/abi/stack_bounds.h"
#include "runtime/base/config.h"
#include "shadow/address_map.h"
#include "shadow/bytes.h"
#include "shadow/poison.h"

namespace penumbra::abi {
namespace {

using shadow::ShadowTag;

// The redzone on each side of an alloca; both compilers leave that much (asan's ABI, 32 bytes in KASAN too).
constexpr std::size_t kAllocaRedzone = 32;

// Tags that frames write; anything else above 7 belongs to someone else.
bool is_frame_tag(std::uint8_t byte) {
  switch (static_cast<ShadowTag>(byte)) {
    case ShadowTag::kStackLeft:
    case ShadowTag::kStackMid:
    case ShadowTag::kStackRight:
    case ShadowTag::kStackPartial:
    case ShadowTag::kStackAfterReturn:
    case ShadowTag::kRegionInvalid:  // outside the span: use-after-scope
    case ShadowTag::kAllocaLeft:
    case ShadowTag::kAllocaRight: return true;
    default: return false;
  }
}

bool is_active() {
  return shadow::is_reserved() && has_compiled_code();
}

void clear(AppAddr begin, AppAddr end) {
  if (begin < end) shadow::clear_stale(begin, end - begin);
}

void clear_from(const Stack& stack, AppAddr begin, AppAddr end) {
  if (stack.kind == StackKind::kUnknown) {
    clear_frames_until_foreign(begin, end);
  } else if (stack.kind != StackKind::kNone) {
    clear(begin, end);
  }
}

}  // namespace

void clear_frames_until_foreign(AppAddr begin, AppAddr end) {
  if (!shadow::is_reserved() || begin >= end || !shadow::has_shadow(begin) || !shadow::has_shadow(end - 1)) return;
  AppAddr granule(round_down(begin.value, shadow::kGranuleSize));
  const AppAddr last(round_down((end - 1).value, shadow::kGranuleSize));
  for (;;) {
    granule = shadow::first_nonzero(granule, last);
    if (granule >= last) return;
    const AppAddr next = granule + shadow::kGranuleSize;
    const std::uint8_t byte = shadow::load_byte(granule);
    // A partial granule is a frame's if a frame's tag follows, as it does behind every variable.
    const bool partial = byte < shadow::kGranuleSize && is_frame_tag(shadow::load_byte(next));
    if (!partial && !is_frame_tag(byte)) return;
    shadow::store_byte(granule, 0);
    granule = next;
  }
}

void abandon_frames(AppAddr sp) {
  if (!is_active()) return;
  const Stack stack = stack_around(sp);
  clear_from(stack, sp, stack.range.end);
  if (stack.kind != StackKind::kAlternate) return;
  // Where the handler interrupted its thread is not known here.
  const Stack own = own_stack();
  clear_from(own, own.range.begin, own.range.end);
}

void abandon_frames_below(AppAddr sp, AppAddr target) {
  if (!is_active()) return;
  const Stack stack = stack_around(target);
  if (stack.contains(sp)) {
    clear_from(stack, sp, target);
  } else if (stack.kind == StackKind::kOwn && stack_around(sp).kind == StackKind::kAlternate) {
    clear_from(stack, stack.range.begin, target);
  }
}

void enter_context(AppAddr stack, std::size_t bytes, AppAddr target) {
  if (is_active() && stack <= target && target - stack <= bytes) clear(stack, target);
}

void begin_thread_stack(AppAddr sp) {
  if (!is_active()) return;
  const Stack stack = own_stack();
  if (stack.contains(sp)) clear(stack.range.begin, sp);
}

void end_thread_stack() {
  if (!is_active()) return;
  const Stack stack = own_stack();
  if (stack.kind == StackKind::kOwn) clear(stack.range.begin, stack.range.end);
}

extern "C" {

// Every compiler calls this before a call that does not return.
__attribute__((visibility("hidden"))) void penumbra_abi_handle_no_return() {
  note_compiled_code();
  abandon_frames(AppAddr(__builtin_frame_address(0)));
}

// [address - 32, address) left redzone; the object, its last granule partial; then to the next multiple of 32 and 32
// bytes more, right redzone. `address` is a multiple of 32.
__attribute__((visibility("hidden"))) void penumbra_abi_alloca_poison(AppAddr address, std::size_t bytes) {
  if (!shadow::is_reserved()) return;
  const std::size_t total = round_up(bytes, kAllocaRedzone) + kAllocaRedzone;
  shadow::poison(address - kAllocaRedzone, kAllocaRedzone, ShadowTag::kAllocaLeft);
  shadow::unpoison_with_tail(address, bytes, total, ShadowTag::kAllocaRight);
}

// All allocas of a scope end: [top, bottom), top the lowest. top null: there were none.
__attribute__((visibility("hidden"))) void penumbra_abi_allocas_unpoison(AppAddr top, AppAddr bottom) {
  if (!shadow::is_reserved() || top.is_null() || top > bottom) return;
  const AppAddr begin(round_down(top.value, shadow::kGranuleSize));
  shadow::unpoison(begin, round_down(bottom - begin, shadow::kGranuleSize));
}

// A variable's scope ends or begins again (use-after-scope), where the compiler does not write the shadow itself.
__attribute__((visibility("hidden"))) void penumbra_abi_poison_stack_memory(AppAddr address, std::size_t bytes) {
  if (shadow::is_reserved()) shadow::poison_any(address, bytes, ShadowTag::kRegionInvalid);
}

__attribute__((visibility("hidden"))) void penumbra_abi_unpoison_stack_memory(AppAddr address, std::size_t bytes) {
  if (shadow::is_reserved()) shadow::unpoison_any(address, bytes);
}

// clang's __asan_set_shadow_XX: `bytes` bytes of *shadow* become `value`; its long runs of a frame's description. The
// address is the direct map's, whichever map this process has: compiled into the code.
__attribute__((visibility("hidden"))) void penumbra_abi_set_shadow(std::uint8_t* shadow_bytes, std::size_t bytes,
                                                                   int value) {
  if (shadow::is_reserved()) {
    shadow::set_bytes(shadow::app_of(ShadowAddr(shadow_bytes)), bytes, static_cast<std::uint8_t>(value));
  }
}

}  // extern "C"

}  // namespace penumbra::abi
