#include "instrument/rewrite/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace penumbra::rewrite {
namespace {

// Entries of one table that are believed; gcc's largest switches have some thousands.
constexpr std::uint32_t kMaxTableEntries = 1u << 16;
// Compilers align functions to 16 bytes; what lies further on belongs to nobody known.
constexpr unsigned kMaxPadding = 15;
// Instructions looked at before an indirect jump for the load of its table.
constexpr std::uint32_t kMaxTableDistance = 24;

bool ends_block(Flow flow) {
  return flow != Flow::kNext && flow != Flow::kSystemCall;
}

bool is_direct_jump(Flow flow) {
  return flow == Flow::kConditionalJump || flow == Flow::kCountedJump || flow == Flow::kJump;
}

bool falls_through(Flow flow) {
  switch (flow) {
    case Flow::kJump:
    case Flow::kIndirectJump:
    case Flow::kReturn:
    case Flow::kTrap: return false;
    default: return true;
  }
}

// Opcode and ModRM behind the prefixes, for the few instructions that are told by them.
struct Opcode {
  std::uint8_t opcode = 0;
  std::uint8_t modrm = 0;
  bool is_wide = false;  // REX.W
  std::uint8_t rex = 0;

  Register reg() const { return static_cast<Register>(((modrm >> 3) & 7) | ((rex & 4) << 1)); }
  Register rm() const { return static_cast<Register>((modrm & 7) | ((rex & 1) << 3)); }
  bool is_register_form() const { return modrm >= 0xc0; }
};

Opcode opcode_of(std::span<const std::uint8_t> bytes) {
  std::size_t i = 0;
  while (i < bytes.size() && (bytes[i] == 0x66 || bytes[i] == 0x3e || bytes[i] == 0xf2 || bytes[i] == 0xf3)) ++i;
  Opcode result;
  if (i < bytes.size() && (bytes[i] & 0xf0) == 0x40) result.rex = bytes[i++];
  result.is_wide = (result.rex & 8) != 0;
  if (i < bytes.size()) result.opcode = bytes[i];
  if (i + 1 < bytes.size()) result.modrm = bytes[i + 1];
  return result;
}

constexpr std::uint8_t kMovsxd = 0x63;
constexpr std::uint8_t kMovLoad = 0x8b;
constexpr std::uint8_t kAddToRm = 0x01;
constexpr std::uint8_t kAddToReg = 0x03;

}  // namespace

Program::Program(const ElfImage& image, Decoder& decoder) : image_(image), decoder_(decoder) {
  const auto& segments = image.segments();
  const auto is_text = [](const Segment& s) { return s.is_executable; };
  const auto first = std::ranges::find_if(segments, is_text);
  if (first == segments.end()) return;
  const auto last = std::find_if(segments.rbegin(), segments.rend(), is_text);
  text_begin_ = first->address;
  if (&*first == &*last) {
    text_ = first->bytes;
  } else {
    // More than one executable segment is rare enough for a copy.
    joined_text_.resize(last->address + last->bytes.size() - text_begin_);
    for (const Segment& s : segments) {
      if (s.is_executable)
        std::ranges::copy(s.bytes, joined_text_.begin() + static_cast<std::ptrdiff_t>(s.address - text_begin_));
    }
    text_ = joined_text_;
  }
  decode_functions();
  doubt_overlaps();
  find_pointers();
  for (Function& function : functions_) find_tables(function);
  make_blocks();
  make_edges();
  names_of_doubted_ = {};
  named_data_ = {};
}

void Program::decode_functions() {
  instructions_.reserve(text_.size() / 4);
  const std::vector<FrameRange> ranges = read_frame_ranges(image_);
  for (std::size_t n = 0; n < ranges.size(); ++n) {
    const FrameRange& range = ranges[n];
    if (range.end > text_end()) continue;
    Function function;
    function.range = range;
    function.first = static_cast<std::uint32_t>(instructions_.size());
    std::uint64_t at = range.begin;
    while (at < range.end) {
      const std::uint64_t offset = at - text_begin_;
      const std::uint32_t number = decoder_.decode(text_.subspan(offset, range.end - at));
      const Form& form = decoder_.form(number);
      if (form.doubt != Doubt::kNone && function.doubt == Doubt::kNone) function.doubt = form.doubt;
      if (form.length == 0) break;
      instructions_.push_back({static_cast<std::uint32_t>(offset), number});
      at += form.length;
    }
    function.count = static_cast<std::uint32_t>(instructions_.size()) - function.first;
    if (function.doubt != Doubt::kNone) {
      note_names(range);
      instructions_.resize(function.first);
      function.count = 0;
    }
    const std::uint64_t next = n + 1 < ranges.size() ? ranges[n + 1].begin : text_end();
    while (range.end + function.padding < next && function.padding < kMaxPadding) {
      const std::uint64_t at_padding = range.end + function.padding;
      const Form& form = decoder_.form(decoder_.decode(text_.subspan(at_padding - text_begin_, next - at_padding)));
      if (!form.is_nop || function.padding + form.length > kMaxPadding) break;
      function.padding = static_cast<std::uint8_t>(function.padding + form.length);
    }
    functions_.push_back(function);
  }
  index_ = InstructionIndex(instructions_, text_.size());
  entry_at_.assign(instructions_.size(), kNoEntry);
}

// Jumps into the middle of an instruction: over a lock prefix, in libc.
void Program::doubt_overlaps() {
  for (Function& function : functions_) {
    for (std::uint32_t i = function.first; i < function.first + function.count && function.doubt == Doubt::kNone;
         ++i) {
      if (!is_direct_jump(form(i).flow)) continue;
      const std::uint64_t target = branch_target(form(i), bytes(i), address(i));
      if (target < function.range.begin || target >= function.range.end || instruction_at(target) != kNone) continue;
      function.doubt = Doubt::kControlFlow;
      note_names(function.range);
    }
  }
}

// A function that runs as it is still calls, jumps to and names others. Behind what does not decode, every byte may begin an
// instruction: too many names only cost patches.
void Program::note_names(const FrameRange& range) {
  for (std::uint64_t at = range.begin; at < range.end;) {
    const auto bytes = text_.subspan(at - text_begin_, range.end - at);
    const Form& form = decoder_.form(decoder_.decode(bytes));
    if (form.length == 0) {
      ++at;
      continue;
    }
    const auto own = bytes.first(form.length);
    if (form.is_wide_address) names_of_doubted_.push_back(rip_relative_target(form, own, at));
    if (form.flow == Flow::kCall || is_direct_jump(form.flow)) {
      names_of_doubted_.push_back(branch_target(form, own, at));
    } else if (form.immediate_bytes >= 4) {
      names_of_doubted_.push_back(static_cast<std::uint64_t>(immediate(form, own)));
    }
    at += form.length;
  }
}

std::uint32_t Program::instruction_at(std::uint64_t address) const {
  if (address < text_begin_ || address >= text_end()) return kNone;
  return index_.at(address - text_begin_);
}

std::uint32_t Program::function_at(std::uint64_t address) const {
  const auto after =
      std::ranges::upper_bound(functions_, address, {}, [](const Function& f) { return f.range.begin; });
  if (after == functions_.begin()) return kNone;
  const auto holder = after - 1;
  return address < holder->range.end ? static_cast<std::uint32_t>(holder - functions_.begin()) : kNone;
}

std::uint32_t Program::block_of(std::uint32_t instruction) const {
  const auto after = std::ranges::upper_bound(blocks_, instruction, {}, &Block::first);
  if (after == blocks_.begin()) return kNone;
  const auto holder = after - 1;
  return instruction < holder->first + holder->count ? static_cast<std::uint32_t>(holder - blocks_.begin()) : kNone;
}

std::uint32_t Program::block_at(std::uint64_t address) const {
  const std::uint32_t instruction = instruction_at(address);
  if (instruction == kNone) return kNone;
  const std::uint32_t block = block_of(instruction);
  return block != kNone && blocks_[block].first == instruction ? block : kNone;
}

std::vector<std::uint32_t> Program::pad_owners(std::uint64_t pad) const {
  std::vector<std::uint32_t> owners;
  auto it = std::ranges::lower_bound(pads_, pad, {}, &std::pair<std::uint64_t, std::uint32_t>::first);
  for (; it != pads_.end() && it->first == pad; ++it) owners.push_back(it->second);
  return owners;
}

void Program::add_entry(std::uint64_t address, Entry why) {
  const std::uint32_t instruction = instruction_at(address);
  if (instruction != kNone) entry_at_[instruction] |= why;
}

// Addresses in code that data, symbols or code itself name.
void Program::find_pointers() {
  // Returns the function that begins there.
  const auto name = [&](std::uint64_t address) -> Function* {
    const std::uint32_t f = function_at(address);
    if (f == kNone) return nullptr;
    const bool is_begin = functions_[f].range.begin == address;
    add_entry(address, is_begin ? kEntryFunction : kEntryPointer);
    functions_[f].has_unknown_callers |= is_begin;
    return is_begin ? &functions_[f] : nullptr;
  };
  for (const std::uint64_t address : image_.code_pointers()) name(address);
  for (const std::uint64_t address : names_of_doubted_) {
    if (Function* const function = name(address)) function->has_doubted_callers = true;
  }
  for (const Symbol& symbol : image_.symbols()) {
    // A local symbol is no caller, but a debugger's breakpoint or a profiler may still name it.
    const std::uint32_t f = function_at(symbol.address);
    if (f != kNone && functions_[f].range.begin == symbol.address) add_entry(symbol.address, kEntryFunction);
  }
  for (const Function& function : functions_) {
    for (const std::uint64_t pad : landing_pads(image_, function.range)) {
      add_entry(pad, kEntryLandingPad);
      pads_.emplace_back(pad, static_cast<std::uint32_t>(&function - functions_.data()));
    }
    for (std::uint32_t i = function.first; i < function.first + function.count; ++i) {
      const Form& f = form(i);
      if (f.is_wide_address) {
        const std::uint64_t target = rip_relative_target(f, bytes(i), address(i));
        if (image_.is_code(target)) {
          name(target);
        } else {
          named_data_.push_back(target);
        }
        continue;
      }
      if (f.displacement_bytes == 4 && !f.is_rip_relative && !image_.is_position_independent()) {
        named_data_.push_back(static_cast<std::uint64_t>(displacement(f, bytes(i))));
      }
      if (f.immediate_bytes >= 4 && f.flow == Flow::kNext) name(static_cast<std::uint64_t>(immediate(f, bytes(i))));
      if (f.flow == Flow::kCall || is_direct_jump(f.flow)) {
        const std::uint64_t target = branch_target(f, bytes(i), address(i));
        if (target >= function.range.begin && target < function.range.end && f.flow != Flow::kCall) continue;
        const std::uint32_t callee = function_at(target);
        if (callee == kNone) continue;
        add_entry(target, functions_[callee].range.begin == target ? kEntryFunction : kEntryJump);
      }
    }
  }
  std::ranges::sort(pads_);
  std::ranges::sort(named_data_);
  named_data_.erase(std::unique(named_data_.begin(), named_data_.end()), named_data_.end());
}

std::optional<std::uint64_t> Program::constant_before(const Function& function, std::uint32_t instruction,
                                                      Register r) const {
  // The nearest definition above, as long as nothing but straight code lies between.
  for (std::uint32_t i = instruction; i-- > function.first;) {
    const Form& f = form(i);
    if (ends_block(f.flow) && f.flow != Flow::kConditionalJump) break;
    if ((f.touches & reg(r)) == 0) {
      if (entry_at_[i] != kNoEntry) break;
      continue;
    }
    if (f.is_wide_address) return rip_relative_target(f, bytes(i), address(i));
    return std::nullopt;
  }
  // Else the only definition in the function: all leas that write it agree, and nothing else does but pops.
  std::optional<std::uint64_t> value;
  for (std::uint32_t i = function.first; i < function.first + function.count; ++i) {
    const Form& f = form(i);
    if ((f.touches & reg(r)) == 0) continue;
    if (f.is_wide_address) {
      const std::uint64_t target = rip_relative_target(f, bytes(i), address(i));
      if (value && *value != target) return std::nullopt;
      value = target;
      continue;
    }
    const Opcode op = opcode_of(bytes(i));
    const bool is_pop = op.opcode >= 0x58 && op.opcode <= 0x5f;
    if (!is_pop) return std::nullopt;
  }
  return value;
}

// Recognises   movslq (T,i,4),r; add B,r; jmp *r    mov (T,i,8),r; jmp *r    jmp *T(,i,8)
void Program::find_tables(Function& function) {
  for (std::uint32_t jump = function.first; jump < function.first + function.count; ++jump) {
    if (form(jump).flow != Flow::kIndirectJump) continue;
    JumpTable table;
    table.jump = jump;
    table.load = kNone;
    const auto through = [&](std::uint32_t load, std::uint8_t entry_bytes) {
      const Form& f = form(load);
      if (f.operand_count != 1 || f.operands[0].index < 0 || f.operands[0].scale != entry_bytes) return;
      const MemoryOperand& m = f.operands[0];
      std::optional<std::uint64_t> base = 0;
      if (m.base >= 0) base = constant_before(function, load, m.base);
      if (m.base == kRip || m.base == kVector || !base) return;
      table.load = load;
      table.entry_bytes = entry_bytes;
      table.table = *base + static_cast<std::uint64_t>(displacement(f, bytes(load)));
      if (table.base == 0) table.base = table.table;
    };
    // A whole pointer that a plain load takes from memory is one that data or code names: an entry already (I4). Only
    // sums of a base and an offset, and what an index chooses, lead to places that nothing names.
    const auto is_plain_load = [&](std::uint32_t load) {
      const Form& f = form(load);
      return f.operand_count == 1 && f.operands[0].index == kNoRegister && f.operands[0].size == 8;
    };
    bool is_pointer = false;
    if (form(jump).operand_count == 1) {
      is_pointer = is_plain_load(jump);
      through(jump, 8);
    } else {
      // jmp *r: look back for what made r.
      const Register target = opcode_of(bytes(jump)).rm();
      Register offset = target;
      bool added = false;
      for (std::uint32_t i = jump; i-- > function.first && jump - i <= kMaxTableDistance;) {
        const Form& f = form(i);
        if (ends_block(f.flow) && f.flow != Flow::kConditionalJump) break;
        if ((f.touches & reg(offset)) == 0) continue;
        const Opcode op = opcode_of(bytes(i));
        if (!added && op.is_wide && op.is_register_form() && (op.opcode == kAddToRm || op.opcode == kAddToReg)) {
          // One of the two is the offset that was loaded, the other what it is relative to.
          const Register source = op.opcode == kAddToRm ? op.reg() : op.rm();
          added = true;
          if (const auto base = constant_before(function, i, source)) {
            table.base = *base;
          } else if (const auto own = constant_before(function, i, offset)) {
            table.base = *own;
            offset = source;
          } else {
            break;
          }
          continue;
        }
        if (added && op.is_wide && op.opcode == kMovsxd) through(i, 4);
        if (!added && op.is_wide && op.opcode == kMovLoad) {
          is_pointer = is_plain_load(i);
          through(i, 8);
        }
        break;
      }
    }
    if (table.load == kNone || !read_table(function, table)) {
      function.has_unresolved_jump |= !is_pointer;
      continue;
    }
    tables_.push_back(table);
  }
}

bool Program::read_table(const Function& function, JumpTable& table) {
  if (!image_.is_data(table.table)) return false;
  table.first_target = static_cast<std::uint32_t>(table_targets_.size());
  for (std::uint32_t n = 0; n < kMaxTableEntries; ++n) {
    const std::uint64_t place = table.table + std::uint64_t{n} * table.entry_bytes;
    // Where the code names other data, this table has ended.
    if (n != 0 && std::ranges::binary_search(named_data_, place)) break;
    const std::optional<std::uint64_t> raw = table.entry_bytes == 8 ? image_.pointer(place) : image_.word(place, 4);
    if (!raw) break;
    const std::uint64_t target =
        table.entry_bytes == 8
            ? *raw
            : table.base + static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(*raw)});
    if (instruction_at(target) == kNone) break;
    // A table of function pointers is no switch: the first target lies in the function itself.
    if (n == 0 && (target < function.range.begin || target >= function.range.end)) break;
    table_targets_.push_back(target);
  }
  table.target_count = static_cast<std::uint32_t>(table_targets_.size()) - table.first_target;
  for (const std::uint64_t target : targets(table)) add_entry(target, kEntryTable);
  return table.target_count != 0;
}

void Program::make_blocks() {
  std::vector<bool> leads(instructions_.size() + 1, false);
  for (Function& function : functions_) {
    const std::uint32_t end = function.first + function.count;
    if (function.count == 0) continue;
    leads[function.first] = true;
    for (std::uint32_t i = function.first; i < end; ++i) {
      const Form& f = form(i);
      if (entry_at_[i] != kNoEntry) leads[i] = true;
      if (!ends_block(f.flow) || i + 1 >= end) continue;
      leads[i + 1] = true;
      if (f.flow == Flow::kCall || f.flow == Flow::kIndirectCall) entry_at_[i + 1] |= kEntryReturn;
    }
    for (std::uint32_t i = function.first; i < end && function.doubt == Doubt::kNone; ++i) {
      if (!is_direct_jump(form(i).flow)) continue;
      const std::uint32_t to = instruction_at(branch_target(form(i), bytes(i), address(i)));
      if (to != kNone) leads[to] = true;
    }
  }
  blocks_.reserve(static_cast<std::size_t>(std::count(leads.begin(), leads.end(), true)));
  for (std::uint32_t number = 0; number < functions_.size(); ++number) {
    Function& function = functions_[number];
    function.first_block = static_cast<std::uint32_t>(blocks_.size());
    if (function.doubt != Doubt::kNone) continue;
    for (std::uint32_t i = function.first; i < function.first + function.count; ++i) {
      if (leads[i]) blocks_.push_back({number, i, 0, 0, 0, entry_at_[i], false});
      ++blocks_.back().count;
    }
    function.block_count = static_cast<std::uint32_t>(blocks_.size()) - function.first_block;
  }
}

void Program::make_edges() {
  edges_.reserve(blocks_.size() * 2);  // what is not filled takes no memory
  std::uint32_t next_table = 0;        // tables_ ascend by jump, as functions do
  for (std::uint32_t number = 0; number < blocks_.size(); ++number) {
    Block& block = blocks_[number];
    const Function& function = functions_[block.function];
    const std::uint32_t last = block.first + block.count - 1;
    const Form& f = form(last);
    block.first_edge = static_cast<std::uint32_t>(edges_.size());
    const auto go = [&](std::uint64_t target) {
      const std::uint32_t to = block_at(target);
      if (to == kNone) {
        block.leaves_to_unknown = true;
      } else {
        edges_.push_back(to);
      }
    };
    if (is_direct_jump(f.flow)) go(branch_target(f, bytes(last), address(last)));
    if (f.flow == Flow::kIndirectJump) {
      while (next_table < tables_.size() && tables_[next_table].jump < last) ++next_table;
      if (next_table < tables_.size() && tables_[next_table].jump == last) {
        for (const std::uint64_t target : targets(tables_[next_table])) go(target);
      } else {
        block.leaves_to_unknown = true;
      }
    }
    if (falls_through(f.flow)) {
      if (last + 1 < function.first + function.count) {
        edges_.push_back(number + 1);
      } else {
        go(function.range.end);
      }
    }
    const auto begin = edges_.begin() + block.first_edge;
    std::sort(begin, edges_.end());
    edges_.erase(std::unique(begin, edges_.end()), edges_.end());
    block.edge_count = static_cast<std::uint32_t>(edges_.size()) - block.first_edge;
  }
}

void Program::validate() const {
  const auto require = [](bool holds, const char* claim, std::uint64_t where) {
    if (!holds) throw std::logic_error(fmt::format("program: {} does not hold at {:#x}", claim, where));
  };
  for (const Function& function : functions_) {
    std::uint32_t next = function.first;
    for (std::uint32_t b = function.first_block; b < function.first_block + function.block_count; ++b) {
      require(blocks_[b].first == next && blocks_[b].count != 0, "I1", function.range.begin);
      next += blocks_[b].count;
      for (std::uint32_t i = blocks_[b].first + 1; i < next; ++i) {
        require(entry_at_[i] == kNoEntry, "I4", address(i));
        require(!ends_block(form(i - 1).flow), "I1", address(i));
      }
    }
    require(next == function.first + function.count || function.doubt != Doubt::kNone, "I1", function.range.begin);
    require(function.doubt == Doubt::kNone || function.block_count == 0, "I3", function.range.begin);
  }
  for (const std::uint32_t edge : edges_) require(edge < blocks_.size(), "I2", edge);
}

}  // namespace penumbra::rewrite
