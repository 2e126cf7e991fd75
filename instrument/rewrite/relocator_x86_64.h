// Moves functions into the area, with checks inserted, and finds the patches that lead there.
//
// Everything between calls runs in the area. A call is executed where it always was: the relocated code jumps to the
// original call instruction, and the return site is patched to come back. So return addresses, unwinding, exceptions
// and shadow stacks see only original code. Original bytes change only in patches; whatever is missed runs unchecked
// original code, never garbage.
//
//     original                       area
//     f:   jmp f'        ------->    f':  check; instruction ...
//          ...                            jmp call      ---+
//     call:call g        <--------------------------------+
//          jmp r'        ------->    r':  ...
//
// R1  every original instruction of a relocated function has one place in the area, in the function's order.
// R2  no patch covers a byte that control can reach from unpatched code: calls, entries that stay native, other entries.
// R4  control comes to a redirected function (libc_roles.h) through its original entry, but from its own kind.
// R3  a function with an unresolved indirect jump has only patches that cover one whole instruction, and no slots; the
//     begin of a string variant of libc may have any (which tails its jumps choose is computed, that they are tails is known).
//
// zone: hosted
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "instrument/rewrite/access_plan.h"
#include "instrument/rewrite/area_x86_64.h"
#include "instrument/rewrite/check_emitter_x86_64.h"
#include "instrument/rewrite/libc_roles.h"
#include "instrument/rewrite/liveness.h"
#include "instrument/rewrite/program.h"
#include "instrument/rewrite/rewritten_module.h"

namespace penumbra::rewrite {

// A function, or all of them ("*"), whose reads or writes are left unchecked; with both, it is left as it is.
struct OptOut {
  std::string function;  // a symbol, or 0xADDRESS of its begin
  bool reads = true;
  bool writes = true;
};

struct RewriteOptions {
  AccessOptions access;
  bool exact = false;      // look at the granule of an access's first byte as well: no misaligned one begins unseen
  bool calls_out = false;  // no look at the direct map: each check calls the exact routine (for the paged map)
  std::vector<OptOut> optout;
  bool checks = true;  // false: relocate only, to find out what moving alone costs
  bool relocate_tables = true;
  bool redirect_calls = true;  // let direct calls go to the relocated callee at once
};

class Relocator {
 public:
  Relocator(const Program& program, const Liveness& liveness, const RewriteOptions& options);

  RewrittenModule run();
  // Code offset of the relocated instruction, kNone where it was not moved. After run().
  std::uint32_t place_of(std::uint32_t instruction) const { return placed_[instruction] - 1; }

 private:
  // A displacement that led to a jump table and now leads to its copy.
  struct TableOperand {
    std::uint32_t operand = 0;
    std::uint32_t copy = 0;  // index into tables_
    std::int32_t displacement = 0;
  };
  struct TableCopy {
    std::uint64_t table = 0;
    std::uint8_t entry_bytes = 0;
    std::uint32_t at = 0;
    std::uint32_t number = 0;  // JumpTable
  };

  bool is_excluded(const Function& function) const;
  void find_left_out();
  // What a direct jump or call from `function` to `target` is to mean.
  Link::Kind link_to(std::uint32_t from, std::uint64_t target) const;
  void redirect_calls();
  void add_redirect(std::uint32_t function, std::uint32_t code_offset);
  std::vector<bool> find_reach(const Function& function, const FunctionPlan& plan) const;
  void copy_tables(const Function& function);
  void emit_function(const Function& function, const FunctionPlan& plan);
  void emit_instruction(const Function& function, std::uint32_t instruction);
  void copy_instruction(std::uint32_t instruction);
  void resolve_links();
  bool is_redirected(std::uint32_t function) const { return roles_[function] != LibcRole::kNone; }
  std::uint32_t text_offset(std::uint32_t instruction) const { return program_.instructions()[instruction].offset; }

  const Program& program_;
  const Liveness& liveness_;
  RewriteOptions options_;
  AccessPlanner planner_;
  std::vector<LibcRole> roles_;         // by function
  std::vector<std::uint8_t> left_out_;  // by function: kLeftOutReads, kLeftOutWrites; empty for none
  Area area_;
  Writer& writer_ = area_.writer;
  RewrittenModule& module_ = area_.module;
  CheckEmitter checks_;
  std::vector<std::uint32_t> placed_;  // by instruction: code offset + 1
  std::vector<TableOperand> table_operands_;
  std::vector<TableCopy> tables_;                               // in the order of their making
  std::vector<std::pair<std::uint32_t, std::uint32_t>> loads_;  // load instruction, index into tables_: sorted
};

}  // namespace penumbra::rewrite
