#include "instrument/rewrite/relocator_x86_64.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "shadow/encoding.h"

namespace penumbra::rewrite {
namespace {

constexpr std::uint8_t kNotEqual = 5;
constexpr std::uint8_t kNoPush = 0xff;
constexpr std::uint16_t kRedZone = 128;
constexpr std::uint32_t kFunctionAlignment = 16;
// Code of functions that stands together before their thunks follow. The more, the fewer pages a program touches; thunks
// waiting for their turn take some 100 bytes each.
constexpr std::uint32_t kHotRun = 512u << 10;

// Process ruling 4: left alone by name, whatever is known about them. (__restore_rt is a signal frame by its FDE.)
constexpr std::string_view kExcludedNames[] = {
    "vfork",          "__vfork",           "clone",           "__clone",     "__clone3",        "clone3",
    "getcontext",     "setcontext",        "swapcontext",     "makecontext", "__start_context", "setjmp",
    "_setjmp",        "__sigsetjmp",       "longjmp",         "_longjmp",    "siglongjmp",      "__longjmp_chk",
    "__libc_longjmp", "__libc_siglongjmp", "____longjmp_chk", "__longjmp",   "_start",
};

constexpr std::uint8_t kLeftOutReads = 1;
constexpr std::uint8_t kLeftOutWrites = 2;

// States of a byte while patches are placed.
enum class ByteUse : std::uint8_t { kFree, kNative, kPatch };

ModuleState plain_state() {
  ModuleState state{};
  state.rax_home = kNoPush;
  std::fill(std::begin(state.pushed), std::end(state.pushed), kNoPush);
  return state;
}

}  // namespace

Relocator::Relocator(const Program& program, const Liveness& liveness, const RewriteOptions& options)
    : program_(program),
      liveness_(liveness),
      options_(options),
      planner_(program, liveness, options.access),
      roles_(find_libc_roles(program)) {}

bool Relocator::is_excluded(const Function& function) const {
  if (function.range.is_signal_frame || changes_context(program_, function)) return true;
  const auto& symbols = program_.image().symbols();
  for (auto s = std::ranges::lower_bound(symbols, function.range.begin, {}, &Symbol::address);
       s != symbols.end() && s->address == function.range.begin; ++s) {
    if (std::ranges::find(kExcludedNames, s->name) != std::end(kExcludedNames)) return true;
  }
  return false;
}

void Relocator::find_left_out() {
  if (options_.optout.empty()) return;
  left_out_.assign(program_.functions().size(), 0);
  const auto& symbols = program_.image().symbols();
  for (const OptOut& entry : options_.optout) {
    const auto bits =
        static_cast<std::uint8_t>((entry.reads ? kLeftOutReads : 0) | (entry.writes ? kLeftOutWrites : 0));
    if (entry.function == "*") {
      for (std::uint8_t& function : left_out_) function |= bits;
      continue;
    }
    const auto leave_out = [&](std::uint64_t begin) {
      const std::uint32_t function = program_.function_at(begin);
      if (function != kNone && program_.functions()[function].range.begin == begin) left_out_[function] |= bits;
    };
    if (entry.function.starts_with("0x")) leave_out(std::strtoull(entry.function.c_str(), nullptr, 16));
    for (const Symbol& symbol : symbols) {
      if (symbol.name == entry.function) leave_out(symbol.address);
    }
  }
}

RewrittenModule Relocator::run() {
  find_left_out();
  placed_.assign(program_.instructions().size(), 0);
  module_.stats.text_bytes = program_.text_end() - program_.text_begin();
  for (std::uint32_t number = 0; number < program_.functions().size(); ++number) {
    const Function& function = program_.functions()[number];
    ++module_.stats.functions;
    if (function.block_count == 0) {
      ++module_.stats.doubted;
      add_redirect(number, kNotMoved);
      continue;
    }
    const std::uint8_t left_out = left_out_.empty() ? 0 : left_out_[number];
    if (is_excluded(function) || left_out == (kLeftOutReads | kLeftOutWrites)) {
      ++module_.stats.excluded;
      add_redirect(number, kNotMoved);
      continue;
    }
    AccessOptions wanted = options_.access;
    wanted.reads &= (left_out & kLeftOutReads) == 0;
    wanted.writes &= (left_out & kLeftOutWrites) == 0;
    planner_.want(wanted);
    const bool is_variant = roles_[number] == LibcRole::kStringVariant;
    const FunctionPlan plan = is_variant ? planner_.plan_without_checks(number) : planner_.plan(number);
    std::vector<bool> reach = find_reach(function, plan);
    if (is_redirected(number)) reach[0] = true;
    if (is_variant) std::fill(reach.begin(), reach.end(), true);
    const bool enters = std::ranges::any_of(reach, [](bool r) { return r; });
    if (!enters) continue;
    ++module_.stats.relocated;
    if (options_.relocate_tables) copy_tables(function);
    emit_function(function, plan);
    place_patches(function, reach);
    add_redirect(number, place_of(function.first));
    if (writer_.position() - first_hot_ >= kHotRun) emit_thunks();
  }
  emit_thunks();
  if (options_.redirect_calls) redirect_calls();
  std::ranges::sort(module_.patches, {}, &ModulePatch::text_offset);
  std::ranges::sort(module_.checks, {}, &ModuleCheck::return_offset);
  module_.ledger = planner_.ledger();
  resolve_links();
  return std::move(module_);
}

void Relocator::add_redirect(std::uint32_t function, std::uint32_t code_offset) {
  if (!is_redirected(function)) return;
  const std::uint64_t begin = program_.functions()[function].range.begin;
  module_.redirects.push_back({static_cast<std::uint32_t>(begin - program_.text_begin()), code_offset});
}

// Direct calls may go to the relocated callee at once: its entry is patched to lead there anyway.
void Relocator::redirect_calls() {
  std::vector<std::uint32_t> patched;
  for (const ModulePatch& patch : module_.patches) {
    if (patch.kind == ModulePatch::kJump5) patched.push_back(patch.text_offset);
  }
  std::ranges::sort(patched);
  for (std::uint32_t number = 0; number < program_.functions().size(); ++number) {
    const Function& function = program_.functions()[number];
    if (function.block_count == 0) continue;
    for (std::uint32_t i = function.first; i < function.first + function.count; ++i) {
      const Form& form = program_.form(i);
      if (form.flow != Flow::kCall || form.length != 5) continue;
      const std::uint64_t target = branch_target(form, program_.bytes(i), program_.address(i));
      const std::uint32_t callee = program_.instruction_at(target);
      if (callee == kNone || placed_[callee] == 0 || link_to(number, target) != Link::kCode) continue;
      if (!std::ranges::binary_search(patched, text_offset(callee))) continue;
      module_.patches.push_back({text_offset(i), place_of(callee), ModulePatch::kCall});
    }
  }
}

Relocator::Link::Kind Relocator::link_to(std::uint32_t from, std::uint64_t target) const {
  const std::uint32_t to = program_.function_at(target);
  if (to == kNone || to == from || !is_redirected(to) || program_.functions()[to].range.begin != target) {
    return Link::kCode;
  }
  return roles_[to] == LibcRole::kStringVariant && roles_[from] == roles_[to] ? Link::kCode : Link::kOriginal;
}

// Blocks from which a check is met before the next call: their entries are worth a jump.
std::vector<bool> Relocator::find_reach(const Function& function, const FunctionPlan& plan) const {
  std::vector<bool> reach = plan.block_has_check;
  if (!options_.checks) std::fill(reach.begin(), reach.end(), true);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::uint32_t k = function.block_count; k-- > 0;) {
      if (reach[k]) continue;
      const Block& block = program_.blocks()[function.first_block + k];
      const Flow flow = program_.form(block.first + block.count - 1).flow;
      if (flow == Flow::kCall || flow == Flow::kIndirectCall) continue;
      for (const std::uint32_t to : program_.successors(block)) {
        const std::uint32_t other = to - function.first_block;
        if (other < function.block_count && reach[other]) reach[k] = changed = true;
      }
    }
  }
  return reach;
}

// Jump tables get a copy in the area whose entries name relocated code, so that a switch in a loop stays there.
void Relocator::copy_tables(const Function& function) {
  const auto& all = program_.tables();
  auto table = std::ranges::lower_bound(all, function.first, {}, &JumpTable::jump);
  for (; table != all.end() && table->jump < function.first + function.count; ++table) {
    std::uint32_t copy = 0;
    while (copy < tables_.size() &&
           !(tables_[copy].table == table->table && tables_[copy].entry_bytes == table->entry_bytes)) {
      ++copy;
    }
    if (copy == tables_.size()) {
      writer_.align(8);
      tables_.push_back(
          {table->table, table->entry_bytes, writer_.position(), static_cast<std::uint32_t>(table - all.begin())});
      for (std::uint32_t n = 0; n < table->target_count * table->entry_bytes; ++n) writer_.put_byte(0);
      ++module_.stats.tables;
    }
    loads_.emplace_back(table->load, copy);
  }
}

void Relocator::mark(std::uint32_t instruction, const ModuleState& state) {
  const std::uint32_t here = writer_.position();
  const std::uint32_t text = text_offset(instruction);
  auto& places = module_.places;
  if (places.empty() || places.back().text_offset != text) places.push_back({here, text});
  auto& states = module_.states;
  if (states.empty() ? !(state == plain_state()) : !(state == states.back())) {
    states.push_back(state);
    states.back().code_offset = here;
  }
}

void Relocator::emit_function(const Function& function, const FunctionPlan& plan) {
  writer_.align(kFunctionAlignment);
  const std::uint32_t begin = writer_.position();
  auto check = plan.checks.begin();
  auto call = plan.system_calls.begin();
  for (std::uint32_t i = function.first; i < function.first + function.count; ++i) {
    placed_[i] = writer_.position() + 1;
    mark(i, plain_state());
    for (; check != plan.checks.end() && check->at == i; ++check) {
      if (!options_.checks) continue;
      if (check->is_special) {
        emit_special(*check, plan);
      } else {
        emit_check(*check, plan);
      }
      mark(i, plain_state());
      // Behind its checks the instruction has a place of its own: where a fault of a check's shadow load resumes.
      module_.places.push_back({writer_.position(), text_offset(i)});
    }
    if (call != plan.system_calls.end() && call->at == i && options_.checks) {
      emit_system_call(function, *call, plan);
      ++call;
    } else {
      emit_instruction(function, i);
    }
  }
  const Flow last = program_.form(function.first + function.count - 1).flow;
  if (last != Flow::kReturn && last != Flow::kJump && last != Flow::kIndirectJump && last != Flow::kTrap &&
      last != Flow::kCall && last != Flow::kIndirectCall) {
    links_.push_back({writer_.put_jump(), 0, function.range.end, Link::kCode});
  }
  module_.stats.hot_bytes += writer_.position() - begin;
}

void Relocator::emit_thunks() {
  const std::uint32_t begin = writer_.position();
  for (const PendingThunk& thunk : thunks_) emit_thunk(thunk);
  thunks_.clear();
  first_hot_ = writer_.position();
  module_.stats.cold_bytes += first_hot_ - begin;
}

std::uint32_t Relocator::add_accesses(const Check& check, const FunctionPlan& plan) {
  const auto first = static_cast<std::uint32_t>(module_.accesses.size());
  for (std::uint32_t n = 0; n < check.access_count; ++n) {
    const CheckedAccess& access = plan.accesses[check.first_access + n];
    const Form& form = program_.form(access.instruction);
    const AccessShape shape = check.is_special ? form.operands[check.operand].shape : AccessShape::kPlain;
    module_.accesses.push_back({text_offset(access.instruction), access.displacement, access.size,
                                static_cast<std::uint8_t>(access.is_write), static_cast<std::uint8_t>(shape)});
  }
  return first;
}

void Relocator::add_check_record(const Check& check, std::uint32_t first_access) {
  ModuleCheck record{};
  record.return_offset = writer_.position();
  record.first_access = first_access;
  record.access_count = static_cast<std::uint16_t>(check.access_count);
  record.base = check.base;
  record.index = check.index;
  record.scale = check.scale;
  record.scratch = static_cast<std::uint8_t>(check.scratch);
  record.is_special = check.is_special;
  record.operand = check.operand;
  record.low = check.low;
  module_.checks.push_back(record);
}

void Relocator::emit_check(const Check& check, const FunctionPlan& plan) {
  ModuleState state = plain_state();
  const std::uint32_t at = check.at;
  unsigned pushed = 0;
  const auto push = [&](Register r) {
    writer_.put_push(r);
    state.stack_bytes += 8;
    state.pushed[pushed++] = static_cast<std::uint8_t>(r);
    mark(at, state);
  };
  if (check.pushes() && plan.may_use_red_zone) {
    writer_.put_red_zone_down();
    state.stack_bytes += kRedZone;
    mark(at, state);
  }
  if (check.pushes_scratch) push(check.scratch);
  if (check.pushes_home) push(check.rax_home);
  if (check.pushes_rax) push(kRax);
  const std::int32_t moved = check.base == kRsp ? state.stack_bytes : 0;
  writer_.put_lea(check.scratch, check.base, check.index, check.scale, check.high - 1 + moved);
  if (check.saves_flags) {
    if (check.rax_home != kNoRegister) {
      writer_.put_mov(check.rax_home, kRax);
      state.rax_home = static_cast<std::uint8_t>(check.rax_home);
    }
    // lahf and seto change rax only; until both are done the flags are still in place.
    writer_.put_lahf_seto();
    state.flags_in_ax = 1;
    mark(at, state);
  }
  writer_.put_shift_right_3(check.scratch);
  const unsigned granules = tested_granules(check.low, check.high, check.access_count);
  PendingThunk thunk{0, 0, check, add_accesses(check, plan), plan.may_use_red_zone};
  const auto offset = static_cast<std::int32_t>(shadow::kShadowOffset);
  const auto compare = [&](unsigned lowest, unsigned width) {
    writer_.put_compare_zero(check.scratch, offset - static_cast<std::int32_t>(lowest - 1), width);
    thunk.jump = writer_.put_jump_if(kNotEqual);
    thunks_.push_back(thunk);
  };
  // A comparison wider than the span would look at bytes before it: take two that meet or overlap instead.
  const unsigned width = granules > 8 ? 1 : std::bit_floor(granules);
  if (granules > 8) compare(8, 8);
  if (width != granules && granules <= 8) compare(width, width);
  compare(granules, width);
  if (options_.exact && check.high - check.low > 1) {
    // A misaligned span may begin in one granule more.
    const auto in_place = [&](Register r) { return r == kRax && check.rax_home != kNoRegister ? check.rax_home : r; };
    writer_.put_lea(check.scratch, in_place(check.base), in_place(check.index), check.scale, check.low + moved);
    writer_.put_shift_right_3(check.scratch);
    compare(1, 1);
  }
  const std::uint32_t back = writer_.position();
  for (std::size_t n = thunks_.size(); n-- > 0 && thunks_[n].back == 0;) thunks_[n].back = back;
  if (check.saves_flags) {
    writer_.put_sahf();
    if (check.rax_home != kNoRegister) writer_.put_mov(kRax, check.rax_home);
    state.flags_in_ax = 0;
    state.rax_home = kNoPush;
    mark(at, state);
  }
  const auto pop = [&](Register r) {
    writer_.put_pop(r);
    state.stack_bytes = static_cast<std::uint16_t>(state.stack_bytes - 8);
    state.pushed[--pushed] = kNoPush;
    mark(at, state);
  };
  if (check.pushes_rax) pop(kRax);
  if (check.pushes_home) pop(check.rax_home);
  if (check.pushes_scratch) pop(check.scratch);
  if (check.pushes() && plan.may_use_red_zone) writer_.put_red_zone_up();
}

void Relocator::emit_thunk(const PendingThunk& thunk) {
  const Check& check = thunk.check;
  const bool may_use_red_zone = thunk.may_use_red_zone;
  writer_.link(thunk.jump, writer_.position());
  ModuleState state = plain_state();
  state.is_thunk = 1;
  const bool was_moved = check.pushes() && may_use_red_zone;
  if (was_moved) state.stack_bytes += kRedZone;
  unsigned pushed = 0;
  const auto remember = [&](bool did, Register r) {
    if (!did) return;
    state.stack_bytes += 8;
    state.pushed[pushed++] = static_cast<std::uint8_t>(r);
  };
  remember(check.pushes_scratch, check.scratch);
  remember(check.pushes_home, check.rax_home);
  remember(check.pushes_rax, kRax);
  state.flags_in_ax = check.saves_flags;
  if (check.rax_home != kNoRegister) state.rax_home = static_cast<std::uint8_t>(check.rax_home);
  mark(check.at, state);
  const auto in_place = [&](Register r) { return r == kRax && check.rax_home != kNoRegister ? check.rax_home : r; };
  const std::int32_t moved = check.base == kRsp ? state.stack_bytes : 0;
  writer_.put_lea(check.scratch, in_place(check.base), in_place(check.index), check.scale, check.low + moved);
  const bool step = may_use_red_zone && !was_moved;
  if (step) {
    writer_.put_red_zone_down();
    state.stack_bytes += kRedZone;
    mark(check.at, state);
  }
  const unsigned slot =
      check_slot(static_cast<unsigned>(check.scratch), static_cast<unsigned>(check.high - check.low));
  links_.push_back({writer_.put_call_through(), 0, slot, Link::kSlot});
  add_check_record(check, thunk.first_access);
  if (step) {
    writer_.put_red_zone_up();
    state.stack_bytes = static_cast<std::uint16_t>(state.stack_bytes - kRedZone);
    mark(check.at, state);
  }
  writer_.link(writer_.put_jump(), thunk.back);
}

// All registers stay in place; the routine saves what it uses, vector state included.
void Relocator::emit_special(const Check& check, const FunctionPlan& plan) {
  ModuleState state = plain_state();
  if (plan.may_use_red_zone) {
    writer_.put_red_zone_down();
    state.stack_bytes += kRedZone;
    mark(check.at, state);
  }
  if (check.saves_flags) {
    writer_.put_pushfq();
    state.stack_bytes += 8;
    mark(check.at, state);
  }
  links_.push_back({writer_.put_call_through(), 0, kSpecialSlot, Link::kSlot});
  Check record = check;
  record.scratch = kRsp;
  const ElementChoice& choice = program_.form(check.at).operands[check.operand].choice;
  record.low = static_cast<std::int32_t>(choice.pack());
  add_check_record(record, add_accesses(check, plan));
  if (check.saves_flags) {
    writer_.put_popfq();
    state.stack_bytes = static_cast<std::uint16_t>(state.stack_bytes - 8);
    mark(check.at, state);
  }
  if (plan.may_use_red_zone) writer_.put_red_zone_up();
}

// Before the instruction and behind it a routine is called, with nothing left on the stack between them. Behind it the code
// stands for the next instruction: the call has been made. The first routine may return to the second one's call instead,
// when it has made the call itself; the record says how far that is.
void Relocator::emit_system_call(const Function& function, const SystemCallSite& site, const FunctionPlan& plan) {
  const auto access = static_cast<std::uint32_t>(module_.accesses.size());
  module_.accesses.push_back(
      {text_offset(site.at), site.number, 0, false, static_cast<std::uint8_t>(AccessShape::kKernel)});
  std::uint32_t returns_to = 0;
  if (site.before) {
    emit_system_hook(kSystemCallSlot, site.at, access, plan.may_use_red_zone);
    returns_to = module_.checks.back().return_offset;
    module_.places.push_back({writer_.position(), text_offset(site.at)});
  }
  copy_instruction(site.at);
  const std::uint32_t next = site.at + 1 < function.first + function.count ? site.at + 1 : site.at;
  const std::uint32_t behind = emit_system_hook(kSystemReturnSlot, next, access, plan.may_use_red_zone);
  // Both calls find the stack alike.
  if (site.before) module_.accesses[access].size = static_cast<std::uint16_t>(behind - returns_to);
  module_.places.push_back({writer_.position(), text_offset(next)});
}

std::uint32_t Relocator::emit_system_hook(unsigned slot, std::uint32_t instruction, std::uint32_t access,
                                          bool red_zone) {
  ModuleState state = plain_state();
  mark(instruction, state);
  if (red_zone) {
    writer_.put_red_zone_down();
    state.stack_bytes += kRedZone;
    mark(instruction, state);
  }
  const std::uint32_t call = writer_.position();
  links_.push_back({writer_.put_call_through(), 0, slot, Link::kSlot});
  Check record;
  record.is_special = true;
  record.access_count = 1;
  add_check_record(record, access);
  if (red_zone) {
    writer_.put_red_zone_up();
    mark(instruction, plain_state());
  }
  return call;
}

void Relocator::emit_instruction(const Function& function, std::uint32_t i) {
  const Form& form = program_.form(i);
  const auto bytes = program_.bytes(i);
  const auto target = [&] { return branch_target(form, bytes, program_.address(i)); };
  const auto number = static_cast<std::uint32_t>(&function - program_.functions().data());
  switch (form.flow) {
    case Flow::kCall:
    case Flow::kIndirectCall: links_.push_back({writer_.put_jump(), 0, program_.address(i), Link::kOriginal}); return;
    case Flow::kJump: links_.push_back({writer_.put_jump(), 0, target(), link_to(number, target())}); return;
    case Flow::kConditionalJump: {
      // A loop's jump back is short where it can be.
      const std::uint32_t to = program_.instruction_at(target());
      if (to != kNone && to >= function.first && to <= i) {
        const std::int64_t distance = std::int64_t{place_of(to)} - (std::int64_t{writer_.position()} + 2);
        if (distance >= -128) {
          writer_.put_byte(static_cast<std::uint8_t>(0x70 | form.condition));
          writer_.put_byte(static_cast<std::uint8_t>(distance));
          return;
        }
      }
      links_.push_back({writer_.put_jump_if(form.condition), 0, target(), link_to(number, target())});
      return;
    }
    case Flow::kCountedJump: {
      // Eight bits of reach: jump over a jump.
      writer_.put(bytes.first(bytes.size() - 1));
      writer_.put_byte(2);
      writer_.put_byte(0xeb);
      writer_.put_byte(5);
      links_.push_back({writer_.put_jump(), 0, target(), link_to(number, target())});
      return;
    }
    default: copy_instruction(i);
  }
}

void Relocator::copy_instruction(std::uint32_t i) {
  const Form& form = program_.form(i);
  const auto bytes = program_.bytes(i);
  const auto load = std::ranges::lower_bound(loads_, i, {}, &std::pair<std::uint32_t, std::uint32_t>::first);
  if (load != loads_.end() && load->first == i) {
    // The load of a jump table, always with a SIB byte and never with an immediate: the same operand with 32 bits of
    // displacement. Mod 0 with base 5 means no base and has them already.
    const std::size_t sib = form.displacement_bytes != 0 ? form.displacement_offset - 1u : bytes.size() - 1;
    const std::uint8_t modrm = bytes[sib - 1];
    const bool has_base = form.operands[0].base != kNoRegister;
    writer_.put(bytes.first(sib - 1));
    writer_.put_byte(static_cast<std::uint8_t>(has_base ? 0x80 | (modrm & 0x3f) : modrm));
    writer_.put_byte(bytes[sib]);
    writer_.put_32(0);
    table_operands_.push_back(
        {writer_.position() - 4, load->second, static_cast<std::int32_t>(displacement(form, bytes))});
    return;
  }
  const std::uint32_t begin = writer_.position();
  writer_.put(bytes);
  if (!form.is_rip_relative) return;
  const std::uint32_t operand = begin + form.displacement_offset;
  links_.push_back({operand, form.length - form.displacement_offset - 4u,
                    rip_relative_target(form, bytes, program_.address(i)), Link::kOriginal});
}

// Jumps at entries: five bytes where they fit, else two bytes to a slot of five in bytes that nobody reaches any more.
void Relocator::place_patches(const Function& function, const std::vector<bool>& reach) {
  const std::uint64_t begin = function.range.begin;
  // Padding behind the function may hold the end of a patch.
  const std::uint64_t limit = function.range.end + function.padding;
  const auto size = static_cast<std::uint32_t>(limit - begin);
  const std::uint32_t text_begin = static_cast<std::uint32_t>(begin - program_.text_begin());

  // No jump of a string variant's own leads back behind the first byte of its begin: they lead to its tails.
  const bool is_begin_safe =
      roles_[static_cast<std::size_t>(&function - program_.functions().data())] == LibcRole::kStringVariant;

  struct EntryPoint {
    std::uint32_t at = 0;  // from the function's begin
    std::uint32_t instruction = 0;
    bool native = false;  // stays as it is, or has to
    bool failed = false;
  };
  std::vector<EntryPoint> entries;
  std::vector<bool> is_entry(size + 1, false);
  for (std::uint32_t k = 0; k < function.block_count; ++k) {
    const Block& block = program_.blocks()[function.first_block + k];
    if (block.entry == kNoEntry) continue;
    const auto at = static_cast<std::uint32_t>(program_.address(block.first) - begin);
    entries.push_back({at, block.first, !reach[k], false});
    is_entry[at] = true;
    module_.stats.entries += reach[k];
  }
  std::vector<ByteUse> use;
  std::vector<ModulePatch> patches;
  const auto is_free = [&](std::uint32_t from, std::uint32_t count) {
    if (from + count > size) return false;
    for (std::uint32_t q = from; q < from + count; ++q) {
      if (use[q] != ByteUse::kFree) return false;
    }
    return true;
  };
  const auto holds_entry = [&](std::uint32_t from, std::uint32_t count) {
    for (std::uint32_t q = from; q < from + count; ++q) {
      if (is_entry[q]) return true;
    }
    return false;
  };
  const auto take = [&](std::uint32_t from, std::uint32_t count) {
    std::fill_n(use.begin() + from, count, ByteUse::kPatch);
  };
  for (bool settled = false; !settled;) {
    settled = true;
    patches.clear();
    use.assign(size, ByteUse::kFree);
    std::vector<bool> stops(function.count, false);
    for (const EntryPoint& entry : entries) {
      if (!entry.native) stops[entry.instruction - function.first] = true;
    }
    // Calls run where they are, and so does whatever control reaches from an entry that stays native.
    std::vector<std::uint32_t> waits;
    std::vector<bool> seen(function.count, false);
    for (std::uint32_t i = function.first; i < function.first + function.count; ++i) {
      const Form& form = program_.form(i);
      if (form.flow != Flow::kCall && form.flow != Flow::kIndirectCall) continue;
      std::fill_n(use.begin() + static_cast<std::ptrdiff_t>(program_.address(i) - begin), form.length,
                  ByteUse::kNative);
    }
    for (const EntryPoint& entry : entries) {
      if (entry.native) waits.push_back(entry.instruction);
    }
    while (!waits.empty()) {
      std::uint32_t i = waits.back();
      waits.pop_back();
      while (i != kNone && i >= function.first && i < function.first + function.count && !seen[i - function.first] &&
             !stops[i - function.first]) {
        seen[i - function.first] = true;
        const Form& form = program_.form(i);
        std::fill_n(use.begin() + static_cast<std::ptrdiff_t>(program_.address(i) - begin), form.length,
                    ByteUse::kNative);
        switch (form.flow) {
          case Flow::kConditionalJump:
          case Flow::kCountedJump:
            waits.push_back(program_.instruction_at(branch_target(form, program_.bytes(i), program_.address(i))));
            ++i;
            break;
          case Flow::kJump:
            i = program_.instruction_at(branch_target(form, program_.bytes(i), program_.address(i)));
            break;
          case Flow::kNext:
          case Flow::kSystemCall: ++i; break;
          default: i = kNone;
        }
      }
    }
    std::vector<EntryPoint*> short_ones;
    for (EntryPoint& entry : entries) {
      if (entry.native) continue;
      const std::uint8_t length = program_.form(entry.instruction).length;
      const bool fits = is_free(entry.at, 5) && !holds_entry(entry.at + 1, 4) &&
                        (!function.has_unresolved_jump || length >= 5 || (is_begin_safe && entry.at == 0));  // R3
      if (!fits) {
        short_ones.push_back(&entry);
        continue;
      }
      take(entry.at, 5);
      patches.push_back({text_begin + entry.at, place_of(entry.instruction), ModulePatch::kJump5});
    }
    for (EntryPoint* entry : short_ones) {
      bool placed = false;
      if (!function.has_unresolved_jump && is_free(entry->at, 2) && !is_entry[entry->at + 1]) {
        take(entry->at, 2);
        const std::int64_t from = std::int64_t{entry->at} + 2;
        for (std::int64_t d = 0; d <= 127 && !placed; ++d) {
          for (const std::int64_t slot : {from + d, from - 5 - d}) {
            if (slot < 0 || slot - from < -128 || slot + 5 > std::int64_t{size}) continue;
            const auto at = static_cast<std::uint32_t>(slot);
            if (!is_free(at, 5) || holds_entry(at, 5)) continue;
            take(at, 5);
            patches.push_back({text_begin + entry->at, text_begin + at, ModulePatch::kJump2});
            patches.push_back({text_begin + at, place_of(entry->instruction), ModulePatch::kJump5});
            placed = true;
            break;
          }
        }
      }
      if (!placed) {
        entry->native = entry->failed = true;
        settled = false;
      }
    }
  }
  for (const EntryPoint& entry : entries) module_.stats.unpatched += entry.failed;
  for (const ModulePatch& patch : patches) {
    module_.stats.jumps_5 += patch.kind == ModulePatch::kJump5;
    module_.stats.jumps_2 += patch.kind == ModulePatch::kJump2;
  }
  std::ranges::copy(patches, std::back_inserter(module_.patches));
}

void Relocator::resolve_links() {
  writer_.align(kPageSize);
  module_.code = writer_.code();
  const std::uint64_t area_bytes = module_.code.size() + kSlotBytes;
  // Below the module, at a distance that differs from module to module: libraries lie side by side.
  constexpr std::uint64_t kMegabyte = 1u << 20;
  std::uint64_t spread = 0;
  for (const char c : program_.image().build_id())
    spread = module_checksum_step(spread, static_cast<std::uint8_t>(c));
  const std::uint64_t gap = (64 + spread % 960) * kMegabyte;
  if (program_.image().is_position_independent()) {
    module_.area_address = -static_cast<std::int64_t>(round_up(area_bytes, kMegabyte) + gap);
  } else {
    // Below the shadow, which begins at 0x7fff8000 and ends the lowest two gigabytes.
    module_.area_address =
        static_cast<std::int64_t>(round_down(shadow::kShadowOffset - area_bytes - gap / 4, kMegabyte));
  }
  const auto area = static_cast<std::uint64_t>(module_.area_address);
  const auto set = [&](std::uint32_t at, std::uint64_t value) {
    const auto narrow = static_cast<std::uint32_t>(value);
    std::memcpy(module_.code.data() + at, &narrow, sizeof narrow);
  };
  for (const Link& link : links_) {
    const std::uint64_t next = std::uint64_t{link.operand} + 4 + link.trailing;
    if (link.kind == Link::kSlot) {
      set(link.operand, module_.code.size() + link.target * sizeof(std::uint64_t) - next);
      continue;
    }
    const std::uint32_t to = link.kind == Link::kCode ? program_.instruction_at(link.target) : kNone;
    if (to != kNone && placed_[to] != 0) {
      set(link.operand, place_of(to) - next);
    } else {
      set(link.operand, link.target - (area + next));
      module_.links.push_back(link.operand);
    }
  }
  for (const TableOperand& operand : table_operands_) {
    const TableCopy& copy = tables_[operand.copy];
    set(operand.operand,
        static_cast<std::uint64_t>(std::int64_t{operand.displacement}) + area + copy.at - copy.table);
    module_.table_operands.push_back(operand.operand);
  }
  for (const TableCopy& copy : tables_) {
    const JumpTable& table = program_.tables()[copy.number];
    const auto targets = program_.targets(table);
    module_.table_copies.push_back(
        {copy.at, static_cast<std::uint32_t>(targets.size()), table.base, table.entry_bytes, 0});
    for (std::uint32_t n = 0; n < targets.size(); ++n) {
      const std::uint32_t to = program_.instruction_at(targets[n]);
      const std::uint64_t address = placed_[to] != 0 ? area + place_of(to) : targets[n];
      const std::uint32_t at = copy.at + n * table.entry_bytes;
      if (table.entry_bytes == 4) {
        set(at, address - table.base);
      } else {
        std::memcpy(module_.code.data() + at, &address, sizeof address);
      }
    }
  }
  std::ranges::sort(module_.links);
}

}  // namespace penumbra::rewrite
