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
// Slow paths (thunks) stand apart from what runs, behind the code of many functions: they are half of all code, and next to
// their checks they would fill the pages, the instruction cache's lines and the page table with what nobody executes.
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
#include "instrument/rewrite/libc_roles.h"
#include "instrument/rewrite/liveness.h"
#include "instrument/rewrite/program.h"
#include "instrument/rewrite/writer_x86_64.h"
#include "runtime/base/module_format.h"

namespace penumbra::rewrite {

// Granules that a check's fast path looks at, from the one that holds the span's last byte down. A span is covered whole
// where its base is a multiple of the granule, and a single access that is misaligned from its second granule on.
constexpr unsigned tested_granules(std::int32_t low, std::int32_t high, std::size_t accesses) {
  if (accesses == 1) return static_cast<unsigned>((high - low + 7) / 8);
  return static_cast<unsigned>(((high - 1) >> 3) - (low >> 3) + 1);
}

// A function, or all of them ("*"), whose reads or writes are left unchecked; with both, it is left as it is.
struct OptOut {
  std::string function;  // a symbol, or 0xADDRESS of its begin
  bool reads = true;
  bool writes = true;
};

struct RewriteOptions {
  AccessOptions access;
  bool exact = false;  // look at the granule of an access's first byte as well: no misaligned one begins unseen
  std::vector<OptOut> optout;
  bool checks = true;  // false: relocate only, to find out what moving alone costs
  bool relocate_tables = true;
  bool redirect_calls = true;  // let direct calls go to the relocated callee at once
};

struct RewriteStats {
  std::uint64_t functions = 0;
  std::uint64_t doubted = 0;
  std::uint64_t excluded = 0;
  std::uint64_t relocated = 0;
  std::uint64_t entries = 0;  // that need a patch
  std::uint64_t jumps_5 = 0;
  std::uint64_t jumps_2 = 0;
  std::uint64_t unpatched = 0;  // that could not get one
  std::uint64_t tables = 0;
  std::uint64_t text_bytes = 0;
  std::uint64_t hot_bytes = 0;
  std::uint64_t cold_bytes = 0;
};

// What a module file is made of.
struct RewrittenModule {
  std::vector<std::uint8_t> code;  // whole pages
  std::int64_t area_address = 0;
  std::vector<ModulePatch> patches;
  std::vector<ModuleCheck> checks;
  std::vector<ModuleAccess> accesses;
  std::vector<ModulePlace> places;
  std::vector<ModuleState> states;
  std::vector<std::uint32_t> links;
  std::vector<std::uint32_t> table_operands;
  std::vector<ModuleTableCopy> table_copies;
  std::vector<ModuleRedirect> redirects;
  RewriteStats stats;
  Ledger ledger;
};

class Relocator {
 public:
  Relocator(const Program& program, const Liveness& liveness, const RewriteOptions& options);

  RewrittenModule run();
  // Code offset of the relocated instruction, kNone where it was not moved. After run().
  std::uint32_t place_of(std::uint32_t instruction) const { return placed_[instruction] - 1; }

 private:
  // A 32-bit relative operand in the area and what it means.
  struct Link {
    enum Kind : std::uint8_t {
      kOriginal,  // an original address
      kCode,      // the relocated instruction of an original address where there is one
      kSlot,      // the slot of this number
    };
    std::uint32_t operand = 0;
    std::uint32_t trailing = 0;  // bytes of the instruction behind the operand
    std::uint64_t target = 0;
    Kind kind = kOriginal;
  };
  // A displacement that led to a jump table and now leads to its copy.
  struct TableOperand {
    std::uint32_t operand = 0;
    std::uint32_t copy = 0;  // index into tables_
    std::int32_t displacement = 0;
  };
  struct PendingThunk {
    std::uint32_t jump = 0;  // operand of the conditional jump to it
    std::uint32_t back = 0;
    Check check;
    std::uint32_t first_access = 0;
    bool may_use_red_zone = true;
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
  Link::Kind link_to(std::uint32_t function, std::uint64_t target) const;
  void redirect_calls();
  void add_redirect(std::uint32_t function, std::uint32_t code_offset);
  std::vector<bool> find_reach(const Function& function, const FunctionPlan& plan) const;
  void copy_tables(const Function& function);
  void emit_function(const Function& function, const FunctionPlan& plan);
  void emit_check(const Check& check, const FunctionPlan& plan);
  void emit_special(const Check& check, const FunctionPlan& plan);
  void emit_system_call(const Function& function, const SystemCallSite& site, const FunctionPlan& plan);
  // Returns where the call stands.
  std::uint32_t emit_system_hook(unsigned slot, std::uint32_t instruction, std::uint32_t access,
                                 bool may_use_red_zone);
  void emit_thunks();
  void emit_thunk(const PendingThunk& thunk);
  void emit_instruction(const Function& function, std::uint32_t instruction);
  void copy_instruction(std::uint32_t instruction);
  std::uint32_t add_accesses(const Check& check, const FunctionPlan& plan);
  void add_check_record(const Check& check, std::uint32_t first_access);
  void mark(std::uint32_t instruction, const ModuleState& state);
  void place_patches(const Function& function, const std::vector<bool>& reach);
  void resolve_links();
  bool is_redirected(std::uint32_t function) const { return roles_[function] != LibcRole::kNone; }
  std::uint32_t text_offset(std::uint32_t instruction) const { return program_.instructions()[instruction].offset; }

  const Program& program_;
  const Liveness& liveness_;
  RewriteOptions options_;
  AccessPlanner planner_;
  std::vector<LibcRole> roles_;         // by function
  std::vector<std::uint8_t> left_out_;  // by function: kLeftOutReads, kLeftOutWrites; empty for none
  Writer writer_;
  RewrittenModule module_;
  std::vector<std::uint32_t> placed_;  // by instruction: code offset + 1
  std::vector<Link> links_;
  std::vector<TableOperand> table_operands_;
  std::vector<PendingThunk> thunks_;                            // of the functions since first_hot_
  std::uint32_t first_hot_ = 0;                                 // where the last thunks end
  std::vector<TableCopy> tables_;                               // in the order of their making
  std::vector<std::pair<std::uint32_t, std::uint32_t>> loads_;  // load instruction, index into tables_: sorted
};

}  // namespace penumbra::rewrite
