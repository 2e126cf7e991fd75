#include "instrument/rewrite/relocator_x86_64.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "instrument/rewrite/patches.h"
#include "shadow/encoding.h"

namespace penumbra::rewrite {
namespace {

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

}  // namespace

Relocator::Relocator(const Program& program, const Liveness& liveness, const RewriteOptions& options)
    : program_(program),
      liveness_(liveness),
      options_(options),
      planner_(program, liveness, options.access),
      roles_(find_libc_roles(program)),
      checks_(program, options.exact, options.calls_out, area_) {}

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
  area_.reserve(program_.text_end() - program_.text_begin(), program_.instructions().size());
  module_.text_begin = program_.text_begin();
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
    // No jump of a string variant's own leads back behind the first byte of its begin: they lead to its tails.
    place_patches(program_, function, reach, placed_, is_variant, module_);
    add_redirect(number, place_of(function.first));
    if (writer_.position() - checks_.end_of_thunks() >= kHotRun) checks_.emit_thunks();
  }
  checks_.emit_thunks();
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

Link::Kind Relocator::link_to(std::uint32_t from, std::uint64_t target) const {
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

void Relocator::emit_function(const Function& function, const FunctionPlan& plan) {
  writer_.align(kFunctionAlignment);
  const std::uint32_t begin = writer_.position();
  auto check = plan.checks.begin();
  auto call = plan.system_calls.begin();
  for (std::uint32_t i = function.first; i < function.first + function.count; ++i) {
    placed_[i] = writer_.position() + 1;
    area_.mark(text_offset(i), plain_state());
    for (; check != plan.checks.end() && check->at == i; ++check) {
      if (!options_.checks) continue;
      checks_.emit(*check, plan);
      area_.mark(text_offset(i), plain_state());
      // Behind its checks the instruction has a place of its own: where a fault of a check's shadow load resumes.
      area_.add_place(text_offset(i));
    }
    if (call != plan.system_calls.end() && call->at == i && options_.checks) {
      const std::uint32_t next = i + 1 < function.first + function.count ? i + 1 : i;
      const CheckEmitter::SystemCall made = checks_.emit_before_system_call(*call, plan.may_use_red_zone);
      copy_instruction(i);
      checks_.emit_behind_system_call(*call, made, next, plan.may_use_red_zone);
      ++call;
    } else {
      emit_instruction(function, i);
    }
  }
  const Flow last = program_.form(function.first + function.count - 1).flow;
  if (last != Flow::kReturn && last != Flow::kJump && last != Flow::kIndirectJump && last != Flow::kTrap &&
      last != Flow::kCall && last != Flow::kIndirectCall) {
    area_.put_jump_to(function.range.end, Link::kCode);
  }
  module_.stats.hot_bytes += writer_.position() - begin;
}

void Relocator::emit_instruction(const Function& function, std::uint32_t i) {
  const Form& form = program_.form(i);
  const auto bytes = program_.bytes(i);
  const auto target = [&] { return branch_target(form, bytes, program_.address(i)); };
  const auto number = static_cast<std::uint32_t>(&function - program_.functions().data());
  switch (form.flow) {
    case Flow::kCall:
    case Flow::kIndirectCall: area_.put_jump_to(program_.address(i), Link::kOriginal); return;
    case Flow::kJump: area_.put_jump_to(target(), link_to(number, target())); return;
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
      area_.links.push_back({target(), writer_.put_jump_if(form.condition), 0, link_to(number, target())});
      return;
    }
    case Flow::kCountedJump: {
      // Eight bits of reach: jump over a jump.
      writer_.put(bytes.first(bytes.size() - 1));
      writer_.put_byte(2);
      writer_.put_byte(0xeb);
      writer_.put_byte(5);
      area_.put_jump_to(target(), link_to(number, target()));
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
  area_.links.push_back({rip_relative_target(form, bytes, program_.address(i)), operand,
                         static_cast<std::uint8_t>(form.length - form.displacement_offset - 4), Link::kOriginal});
}

void Relocator::resolve_links() {
  writer_.align(kPageSize);
  module_.code = writer_.take_code();
  const std::uint64_t area_bytes = module_.code.size() + kSlotBytes;
  // Below the module, at a distance that differs from module to module: libraries lie side by side.
  constexpr std::uint64_t kMegabyte = 1u << 20;
  std::uint64_t spread = 0;
  for (const char c : program_.image().identity())
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
  for (const SlotLink& link : area_.slot_links) {
    set(link.operand, module_.code.size() + link.slot * sizeof(std::uint64_t) - (link.operand + 4));
  }
  for (const Link& link : area_.links) {
    const std::uint64_t next = std::uint64_t{link.operand} + 4 + link.trailing;
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
