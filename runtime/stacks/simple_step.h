// From one frame to its caller by a cached rule: the step that nearly every frame takes, inlined where it is used.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/config.h"
#include "runtime/stacks/rule_cache.h"

namespace penumbra::stacks {

// A frame as the fast way knows it.
struct Place {
  std::uintptr_t pc = 0;
  std::uintptr_t sp = 0;
  std::uintptr_t bp = 0;

  bool operator==(const Place&) const = default;
};

enum class Link : std::uint8_t {
  kCaller,     // `at` is the caller now
  kOutermost,  // there is none
  kUnknown,    // no rule cached, memory outside the window, or no code address: the exact way must decide
};

inline std::uintptr_t load_word(std::uintptr_t address) {
  std::uintptr_t value;
  __builtin_memcpy(&value, reinterpret_cast<const void*>(address), sizeof value);
  return value;
}

// Whether code can lie there: not in the first page, which nothing maps, not above user space.
constexpr bool is_code_address(std::uintptr_t address) {
  return address - kPageSize < kUserAddressEnd - kPageSize;
}

// `pc_back` is 1 where at.pc is a return address, 0 where it is exact. [at.sp, limit) may be read and has 8 bytes at
// least. `bp_slot` becomes the address that the caller's bp was read from, 0 where bp was kept.
__attribute__((always_inline)) inline Link follow_rule(Place& at, std::uintptr_t pc_back, std::uintptr_t limit,
                                                       std::uintptr_t& bp_slot) {
  const std::uintptr_t lookup = at.pc - pc_back;
  const RuleCache::Entry entry = RuleCache::find(lookup);
  if (!entry.is_hit(lookup)) return Link::kUnknown;
  if (entry.is_outermost()) return Link::kOutermost;
  const std::uintptr_t cfa = (entry.is_from_rsp() ? at.sp : at.bp) + entry.cfa_offset();
  const std::uintptr_t distance = entry.rbp_slot();
  // sp + 8 <= cfa <= limit in one comparison: a CFA below wraps around.
  if (cfa - at.sp - 8 > limit - at.sp - 8 || distance > cfa - at.sp) return Link::kUnknown;
  const std::uintptr_t caller = load_word(cfa - 8);
  if (!is_code_address(caller)) return caller == 0 ? Link::kOutermost : Link::kUnknown;
  bp_slot = 0;
  if (distance != 0) {
    bp_slot = cfa - distance;
    at.bp = load_word(bp_slot);
  }
  at.sp = cfa;
  at.pc = caller;
  return Link::kCaller;
}

}  // namespace penumbra::stacks
