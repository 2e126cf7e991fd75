// Which registers and flags hold a value that something still needs: at every block's end, over the whole module.
//
// A check may use a register or the flags without saving them only where they are dead. The answer must never miss a
// live one, so whatever is unknown needs everything.
//
// The flow follows edges between blocks (into cold parts and tail-called functions as well) and goes through direct calls:
//
//     before a call = what the callee needs at its begin
//                   + what is needed after the call and no path through the callee may change
//                   + what the landing pads of the calling function need (an unwinder restores registers as they were)
//     at a return   = what the return sites of direct callers need, handed on through tail jumps
//                   + the callee-saved registers, rax and rdx where callers are unknown; everything where a function that
//                     is not understood calls it (that may know what a local function leaves alone, as gcc's -fipa-ra does)
//
// Assembly that returns values in r9 or the carry flag, and compilers that know a local callee leaves rcx alone, are
// right under these equations; the ABI alone would not do (libcrypto, gcc's -fipa-ra).
//
// L1  live_out of a block is a fixed point of the equations.
// L2  everything is live behind an unresolved indirect jump, a jump out of known code, and before a system call.
//
// zone: hosted
#pragma once

#include <span>
#include <vector>

#include "instrument/rewrite/program.h"

namespace penumbra::rewrite {

class Liveness {
 public:
  explicit Liveness(const Program& program);

  // Live behind the last instruction of the block; behind a call that is: when it returns.
  RegSet live_out(std::uint32_t block) const;
  RegSet live_in(std::uint32_t block) const { return live_in_[block]; }
  // Live before each instruction of the block, in order.
  std::vector<RegSet> before_each(std::uint32_t block) const;

  // Checks L1 by evaluating every equation once more; throws std::logic_error where one does not hold.
  void validate() const;

 private:
  struct Summary {
    RegSet reads = 0;  // needed from outside
    RegSet kills = 0;  // overwritten before any need
  };

  Summary summarise(const Block& block) const;
  void find_changes();
  void solve();
  std::uint32_t last(const Block& block) const { return block.first + block.count - 1; }
  void find_callees();
  std::uint32_t find_callee(const Block& block) const;
  // What is live before the last instruction's own effect, from what its successors need.
  RegSet behind(std::uint32_t block) const;
  RegSet before_call(std::uint32_t block, RegSet after) const;
  RegSet evaluate(std::uint32_t block, const Summary& own) const { return own.reads | (behind(block) & ~own.kills); }

  const Program& program_;
  std::vector<std::uint32_t> callees_;  // by block: the known function that its last instruction calls, else kNone
  std::vector<RegSet> live_in_;         // by block
  std::vector<RegSet> changes_;         // by function: what a call of it may change
  std::vector<RegSet> at_return_;       // by function
  std::vector<RegSet> at_pads_;         // by function: what its landing pads need
};

}  // namespace penumbra::rewrite
