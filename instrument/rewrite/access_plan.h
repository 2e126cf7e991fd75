// Which memory accesses of a function are checked, where, and with what saved.
//
// Every memory operand gets a disposition: checked, part of another check, or not checked and why; the ledger counts
// them all. Accesses of one basic block through the same base and index, neither written between them, share one check of
// the range they span; it stands before the first of them. A check may move up, over instructions that do not touch its
// base and index, to where flags or a register are dead.
//
// P1  at a check's place, base and index hold what they hold at each of its accesses.
// P2  the span of a check is at most kMaxSpan bytes, and every access of it lies in its span.
// P3  scratch and home registers are dead there, or saved by the check; rsp is neither.
//
// zone: hosted
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "instrument/rewrite/liveness.h"
#include "instrument/rewrite/program.h"

namespace penumbra::rewrite {

// Longest span of one check: 64 bytes are eight shadow bytes, one 64-bit comparison.
inline constexpr std::int32_t kMaxSpan = 64;

enum class Disposition : std::uint8_t {
  kChecked,      // by a check of its own place
  kMerged,       // inside the span of an earlier check of its block
  kImplied,      // by checks on every path to it
  kSpecial,      // by a call of a routine that knows its shape
  kStackSlot,    // at rsp without an index: a stack slot
  kFrameSlot,    // at rbp in a function whose rbp is a frame pointer
  kAbsolute,     // rip-relative or at a constant address: a global
  kThreadLocal,  // fs or gs
  kShadow,       // a check that the compiler made (displacement 0x7fff8000)
  kNotWanted,    // reads or writes that the options leave out
  kNoCode,       // in a function that is not rewritten
  kReplaced,     // in a string function of libc: a range-checked version goes before it
};
inline constexpr std::size_t kDispositions = 12;
const char* disposition_name(Disposition d);

struct AccessOptions {
  bool reads = true;
  bool writes = true;
  bool system_calls = true;
};

// One access inside a check's span.
struct CheckedAccess {
  std::uint32_t instruction = 0;
  std::int32_t displacement = 0;  // from base + index * scale
  std::uint16_t size = 0;
  bool is_write = false;
};

struct Check {
  std::uint32_t at = 0;  // instruction before which it stands
  Register base = kNoRegister;
  Register index = kNoRegister;
  std::uint8_t scale = 1;
  bool is_special = false;   // the whole operand, by a routine; the fields below say only which
  std::uint8_t operand = 0;  // of a special check
  std::int32_t low = 0;      // the span: [low, high) from base + index * scale
  std::int32_t high = 0;
  Register scratch = kNoRegister;
  Register rax_home = kNoRegister;  // where rax is kept while it holds the flags
  bool saves_flags = false;
  bool pushes_scratch = false;
  bool pushes_rax = false;
  bool pushes_home = false;
  std::uint32_t first_access = 0;  // into FunctionPlan::accesses
  std::uint32_t access_count = 0;

  bool pushes() const { return pushes_scratch || pushes_rax || pushes_home; }
};

// A `syscall` instruction whose pointers are looked at.
struct SystemCallSite {
  std::uint32_t at = 0;
  std::int32_t number = -1;  // -1: known when it runs
  bool before = false;       // is something to be done before it
  bool behind = true;        // and behind it
};

struct FunctionPlan {
  std::vector<Check> checks;  // ascending by place, in the order of their accesses within one place
  std::vector<CheckedAccess> accesses;
  std::vector<bool> block_has_check;  // by block of the function
  std::vector<SystemCallSite> system_calls;
  bool may_use_red_zone = true;
};

// Counts over all operands of a module.
struct Ledger {
  std::array<std::uint64_t, kDispositions> counts{};
  std::uint64_t flags_saved = 0;
  std::uint64_t registers_spilled = 0;
  std::uint64_t checks = 0;
};

class AccessPlanner {
 public:
  AccessPlanner(const Program& program, const Liveness& liveness, const AccessOptions& options);

  // For the functions that are planned from now on.
  void want(const AccessOptions& options) { options_ = options; }
  FunctionPlan plan(std::uint32_t function);
  // Of a string function that is moved without checks.
  FunctionPlan plan_without_checks(std::uint32_t function);
  const Ledger& ledger() const { return ledger_; }

  // Why this operand of this instruction is not checked, or kChecked.
  Disposition classify(std::uint32_t instruction, std::uint8_t operand, bool has_frame_pointer) const;

 private:
  bool has_frame_pointer(const Function& function) const;
  bool may_use_red_zone(const Function& function) const;
  void plan_block(std::uint32_t block, bool has_frame_pointer, FunctionPlan& plan);
  void plan_system_calls(std::uint32_t block, FunctionPlan& plan) const;
  RegSet quiet(RegSet set, std::uint32_t instruction, const Block& block) const;
  void place(Check& check, std::uint32_t block, const std::vector<RegSet>& live, bool may_use_red_zone);

  const Program& program_;
  const Liveness& liveness_;
  AccessOptions options_;
  Ledger ledger_;
};

}  // namespace penumbra::rewrite
