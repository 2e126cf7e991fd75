#include "instrument/load/original_state.h"

namespace penumbra::load {
namespace {

constexpr unsigned kRax = 0;
constexpr unsigned kRsp = 4;
constexpr std::uint8_t kNone = 0xff;
// What lahf puts into ah: SF ZF AF PF CF, at their places in the flags register; seto puts OF into al.
constexpr std::uint64_t kLahfFlags = 0xd5;
constexpr std::uint64_t kOverflowFlag = 0x800;

}  // namespace

OriginalState original_state(const Area& area, std::uintptr_t pc, const std::uint64_t value[16],
                             std::uint64_t flags) {
  OriginalState original;
  for (unsigned r = 0; r < 16; ++r) original.value[r] = value[r];
  original.pc = original_pc(area, pc);
  original.flags = flags;
  const ModuleState state = state_at(area, pc);
  if (state.flags_in_ax != 0) {
    original.flags &= ~(kLahfFlags | kOverflowFlag);
    original.flags |= (value[kRax] >> 8) & kLahfFlags;
    if ((value[kRax] & 0xff) != 0) original.flags |= kOverflowFlag;
  }
  if (state.rax_home != kNone) original.value[kRax] = value[state.rax_home];
  unsigned pushed = 0;
  while (pushed < 3 && state.pushed[pushed] != kNone) ++pushed;
  const auto* top = reinterpret_cast<const std::uint64_t*>(value[kRsp]);
  for (unsigned n = 0; n < pushed; ++n) original.value[state.pushed[n]] = top[pushed - 1 - n];
  original.value[kRsp] = value[kRsp] + state.stack_bytes;
  return original;
}

}  // namespace penumbra::load
