// One instruction as Capstone sees it, in our own terms where the decoder (decoder.h) compares it with Zydis's view.
//
// zone: hosted
#pragma once

#include <cstdint>
#include <span>

#include "instrument/rewrite/capstone_library.h"
#include "instrument/rewrite/instruction.h"

namespace penumbra::rewrite {

// Any address will do: forms know nothing of places. Small enough that no sum overflows.
inline constexpr std::uint64_t kProbeAddress = 0x100000;

// The whole register that this one is part of; kNoRegister where it is none that we follow.
Register register_of(x86_reg r);

class CapstoneView {
 public:
  // The handle has details switched on and outlives the view.
  explicit CapstoneView(csh handle);
  ~CapstoneView();
  CapstoneView(const CapstoneView&) = delete;
  CapstoneView& operator=(const CapstoneView&) = delete;

  // False when Capstone does not know it. What follows may be asked only after true.
  bool decode(std::span<const std::uint8_t> bytes);

  const cs_insn& instruction() const { return *instruction_; }
  const cs_x86& detail() const { return instruction_->detail->x86; }
  bool in_group(unsigned group) const { return library_.insn_group(handle_, instruction_, group); }
  RegisterUse use() const;

 private:
  const CapstoneLibrary& library_;
  csh handle_;
  cs_insn* instruction_;
};

}  // namespace penumbra::rewrite
