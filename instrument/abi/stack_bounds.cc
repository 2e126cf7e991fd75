#include "instrument/abi/stack_bounds.h"

#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>

#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"

// Where the kernel put argc; every frame of the main thread is below. ld.so exports it (GLIBC_2.2.5).
extern "C" void* __libc_stack_end;

namespace penumbra::abi {
namespace {

// What a main stack without a limit is taken to be: more would make clearing all of it slow.
constexpr std::size_t kUnlimitedStack = std::size_t{64} << 20;

constinit thread_local Stack t_own;
constinit thread_local Stack t_last_unknown;

Stack main_stack() {
  const AppAddr high(__libc_stack_end);
  const std::size_t limit = std::min<std::size_t>(os::stack_limit(), kUnlimitedStack);
  if (high.is_null() || limit == 0 || limit > high.value) return {};
  return {StackKind::kOwn, {AppAddr(round_down(high.value - limit, kPageSize)), high}};
}

// The mapping that covers `a`: one pass over /proc/self/maps, whose lines begin "7f12-7f34 ".
bool mapping_around(AppAddr a, AppRange& range) {
  const os::Result fd = os::open_read("/proc/self/maps");
  if (!fd.ok()) return false;
  char text[1024];
  std::uintptr_t bound[2] = {};
  unsigned field = 0;  // 0, 1: in the first or second number; 2: in the rest of the line
  bool found = false;
  for (;;) {
    const os::Result got = os::read(static_cast<int>(fd.value()), text, sizeof text);
    if (got.error() == EINTR) continue;
    if (!got.ok() || got.value() == 0 || found) break;
    for (long i = 0; i < got.value() && !found; ++i) {
      const char c = text[i];
      if (c == '\n') {
        field = 0;
        bound[0] = bound[1] = 0;
      } else if (field < 2) {
        if (c >= '0' && c <= '9') bound[field] = bound[field] * 16 + static_cast<std::uintptr_t>(c - '0');
        if (c >= 'a' && c <= 'f') bound[field] = bound[field] * 16 + static_cast<std::uintptr_t>(c - 'a' + 10);
        if (c == '-' || c == ' ') ++field;
        if (field == 2) found = bound[0] <= a.value && a.value < bound[1];
      }
    }
  }
  os::close(static_cast<int>(fd.value())).ignore();
  if (found) range = {AppAddr(bound[0]), AppAddr(bound[1])};
  return found;
}

// A pthread's stack: the mapping that holds its thread pointer, up to that.
Stack thread_stack() {
  AppRange mapping;
  const AppAddr tp = os::thread_pointer();
  if (!mapping_around(tp, mapping) || mapping.begin == tp) return {};
  return {StackKind::kOwn, {mapping.begin, tp}};
}

}  // namespace

void set_own_stack(AppAddr low) {
  const AppAddr tp = os::thread_pointer();
  if (low < tp) t_own = {StackKind::kOwn, {low, tp}};
}

bool knows_own_stack() {
  return t_own.kind != StackKind::kNone;
}

void enter_stack(const Stack& stack) {
  t_own = stack;
}

Stack own_stack() {
  if (t_own.kind != StackKind::kNone) return t_own;
  // A fork child of another thread has pid and tid alike, but keeps that thread's stack; its own address tells.
  const AppAddr here(__builtin_frame_address(0));
  const Stack main = main_stack();
  const bool is_first = os::gettid() == os::getpid();
  if (main.contains(here)) {
    t_own = main;
  } else {
    const Stack mine = thread_stack();
    t_own = mine.contains(here) || !is_first ? mine : main;
  }
  return t_own;
}

Stack stack_around(AppAddr sp) {
  const Stack own = own_stack();
  stack_t alternate{};
  if (own.contains(sp)) return own;
  if (os::alternate_stack(&alternate).ok() && (alternate.ss_flags & SS_DISABLE) == 0) {
    const AppAddr low(alternate.ss_sp);
    const Stack stack{StackKind::kAlternate, {low, low + alternate.ss_size}};
    if (stack.contains(sp)) return stack;
  }
  // A mapping may have changed since; its upper end is only a bound, so an old one does no harm beyond that.
  if (t_last_unknown.contains(sp)) return t_last_unknown;
  AppRange mapping;
  if (!mapping_around(sp, mapping)) {
    // No look at the mappings (sealed, or no /proc): a thread's stack lies below its thread pointer, and not far.
    const AppAddr tp = os::thread_pointer();
    if (sp >= tp || tp - sp > kUnlimitedStack) return {};
    return {StackKind::kUnknown, {AppAddr(round_down(sp.value, kPageSize)), tp}};
  }
  t_last_unknown = {StackKind::kUnknown, mapping};
  return t_last_unknown;
}

}  // namespace penumbra::abi
