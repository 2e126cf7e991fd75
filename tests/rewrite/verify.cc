#include "tests/rewrite/verify.h"

#include <Zydis/Zydis.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace penumbra::rewrite {
namespace {

struct Decoded {
  ZydisDecodedInstruction z;
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;

  bool is_relative() const {
    return operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE && operands[0].imm.is_relative && z.operand_count != 0;
  }
  std::uint64_t target(std::uint64_t address) const {
    return address + z.length + static_cast<std::uint64_t>(operands[0].imm.value.s);
  }
  bool is_call() const { return z.meta.category == ZYDIS_CATEGORY_CALL; }
  bool is_conditional() const { return z.meta.category == ZYDIS_CATEGORY_COND_BR; }
  bool is_jump() const { return z.meta.category == ZYDIS_CATEGORY_UNCOND_BR; }
  bool is_counted() const {
    switch (z.mnemonic) {
      case ZYDIS_MNEMONIC_JRCXZ:
      case ZYDIS_MNEMONIC_JECXZ:
      case ZYDIS_MNEMONIC_LOOP:
      case ZYDIS_MNEMONIC_LOOPE:
      case ZYDIS_MNEMONIC_LOOPNE: return true;
      default: return false;
    }
  }
  bool ends() const {
    return is_jump() || z.meta.category == ZYDIS_CATEGORY_RET || z.mnemonic == ZYDIS_MNEMONIC_UD2 ||
           z.mnemonic == ZYDIS_MNEMONIC_HLT || z.mnemonic == ZYDIS_MNEMONIC_INT3;
  }
};

class Verifier {
 public:
  Verifier(const Program& program, const RewrittenModule& module) : program_(program), module_(module) {
    ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    text_ = program.text_begin();
    text_bytes_ = program.text_end() - text_;
    begins_.assign(text_bytes_ + 1, false);
    covered_.assign(text_bytes_ + 16, 0);
    patched_.assign(text_bytes_ + 16, false);
  }

  Verdict run() {
    sweep_text();
    check_patches();
    walk_native_code();
    index_places();
    check_moved_code();
    return std::move(verdict_);
  }

 private:
  void complain(std::string what) { verdict_.complain(std::move(what)); }

  bool decode(const std::uint8_t* bytes, std::size_t size, Decoded& d) const {
    return ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder_, bytes, size, &d.z, d.operands.data()));
  }
  bool decode_text(std::uint64_t address, Decoded& d) const {
    const auto bytes = program_.image().at(address);
    return !bytes.empty() && decode(bytes.data(), std::min<std::size_t>(bytes.size(), 15), d);
  }
  bool decode_code(std::uint32_t at, Decoded& d) const {
    return at < module_.code.size() &&
           decode(module_.code.data() + at, std::min<std::size_t>(15, module_.code.size() - at), d);
  }

  // Where instructions begin: functions from begin to end.
  void sweep_text() {
    for (const Function& function : program_.functions()) {
      Decoded d;
      for (std::uint64_t at = function.range.begin; at < function.range.end && decode_text(at, d); at += d.z.length)
        begins_[at - text_] = true;
    }
  }

  void check_patches() {
    for (const ModulePatch& patch : module_.patches) {
      ++verdict_.patches;
      const std::uint32_t at = patch.text_offset;
      if (patch.kind == ModulePatch::kCall) {
        Decoded d;
        const bool fits = begins_[at] && decode_text(text_ + at, d) && d.is_call() && d.z.length == 5;
        if (!fits) complain(fmt::format("V1: {:x} is no call of five bytes", text_ + at));
        continue;
      }
      const unsigned bytes = patch.kind == ModulePatch::kJump5 ? 5 : 2;
      for (unsigned n = 0; n < bytes; ++n) {
        if (covered_[at + n]++ != 0) complain(fmt::format("V1: two patches cover {:x}", text_ + at + n));
      }
      patched_[at] = true;
      if (patch.kind == ModulePatch::kJump2) {
        if (!begins_[at]) complain(fmt::format("V1: no instruction begins at {:x}", text_ + at));
        slots_.push_back(patch.target);
        const auto distance = static_cast<std::int64_t>(patch.target) - (std::int64_t{at} + 2);
        if (distance < -128 || distance > 127) complain(fmt::format("V1: {:x} cannot reach its slot", text_ + at));
      }
    }
    std::ranges::sort(slots_);
    for (const ModulePatch& patch : module_.patches) {
      if (patch.kind != ModulePatch::kJump5) continue;
      const bool is_slot = std::ranges::binary_search(slots_, patch.text_offset);
      if (!is_slot && !begins_[patch.text_offset])
        complain(fmt::format("V1: no instruction begins at {:x}", text_ + patch.text_offset));
    }
  }

  void wait_for(std::uint64_t address) {
    if (address >= text_ && address < text_ + text_bytes_) waiting_.push_back(address);
  }

  void walk_native_code() {
    std::vector<bool> seen(text_bytes_ + 16, false);
    for (const std::uint64_t address : program_.image().code_pointers()) wait_for(address);
    for (const Symbol& s : program_.image().symbols()) {
      if (s.is_function && program_.image().is_code(s.address)) wait_for(s.address);
    }
    for (const Function& function : program_.functions()) {
      for (const std::uint64_t pad : landing_pads(program_.image(), function.range)) wait_for(pad);
      Decoded d;
      for (std::uint64_t at = function.range.begin; at < function.range.end && decode_text(at, d); at += d.z.length) {
        // A call is native itself, and comes back behind itself; what it and leas name is reached from there.
        if (d.is_call()) {
          mark(at, d.z.length);
          // One that ends its function does not come back.
          if (at + d.z.length < function.range.end) wait_for(at + d.z.length);
          if (d.is_relative()) wait_for(d.target(at));
        }
        if (d.z.mnemonic == ZYDIS_MNEMONIC_LEA && d.operands[1].mem.base == ZYDIS_REGISTER_RIP)
          wait_for(at + d.z.length + static_cast<std::uint64_t>(d.operands[1].mem.disp.value));
        // A jump from one function to another goes there from moved code as well, when the other was not moved.
        if (d.is_relative() && !d.is_call() && program_.function_at(d.target(at)) != program_.function_at(at))
          wait_for(d.target(at));
      }
    }
    while (!waiting_.empty()) {
      std::uint64_t at = waiting_.back();
      waiting_.pop_back();
      Decoded d;
      // Only where functions are known: nothing else is patched.
      while (at - text_ < text_bytes_ && begins_[at - text_] && !patched_[at - text_] && !seen[at - text_] &&
             decode_text(at, d)) {
        seen[at - text_] = true;
        mark(at, d.z.length);
        if (d.is_relative() && !d.is_call()) wait_for(d.target(at));
        if (d.is_jump() && !d.is_relative()) {
          const std::uint32_t jump = program_.instruction_at(at);
          for (const JumpTable& table : program_.tables()) {
            if (table.jump != jump) continue;
            for (const std::uint64_t target : program_.targets(table)) wait_for(target);
          }
        }
        if (d.ends() || d.is_call()) break;  // the return site waits already
        at += d.z.length;
      }
    }
  }

  void mark(std::uint64_t address, unsigned bytes) {
    for (unsigned n = 0; n < bytes; ++n) {
      if (covered_[address - text_ + n] == 0) continue;
      complain(fmt::format("V2: {:x} is executed where it is, and lies under a patch", address));
      return;
    }
  }

  void index_places() {
    first_place_.assign(text_bytes_ + 1, kNone);
    std::uint32_t previous = 0;
    for (const ModulePlace& place : module_.places) {
      if (place.code_offset < previous) complain(fmt::format("V4: places do not ascend at {:x}", place.code_offset));
      previous = place.code_offset;
      if (!begins_[place.text_offset])
        complain(fmt::format("V4: a place names {:x}, where no instruction begins", text_ + place.text_offset));
      std::uint32_t& first = first_place_[place.text_offset];
      if (first == kNone || is_routine_behind(place.text_offset, first, place.code_offset)) first = place.code_offset;
    }
  }

  // What stands for the instruction behind a system call begins with the call of a routine, which a jump leaves out.
  bool is_routine_behind(std::uint32_t text_offset, std::uint32_t from, std::uint32_t to) const {
    Decoded d;
    if (text_offset < 2 || !begins_[text_offset - 2] || !decode_text(text_ + text_offset - 2, d) ||
        d.z.mnemonic != ZYDIS_MNEMONIC_SYSCALL) {
      return false;
    }
    bool calls = false;
    for (std::uint32_t at = from; at < to && decode_code(at, d); at += d.z.length) {
      if (d.z.mnemonic != ZYDIS_MNEMONIC_LEA && !d.is_call()) return false;
      calls |= d.is_call();
    }
    return calls;
  }

  // The link-time address that code at this offset names.
  std::uint64_t area(std::uint64_t at) const { return static_cast<std::uint64_t>(module_.area_address) + at; }

  // Where moved code should go for an original target.
  bool leads_to(std::uint64_t actual, std::uint64_t original) const {
    if (actual == original) return true;  // patched to come back, or never moved
    const bool known = original >= text_ && original - text_ < text_bytes_;
    return known && first_place_[original - text_] != kNone && actual == area(first_place_[original - text_]);
  }

  static bool may_stand_in_a_check(ZydisMnemonic m) {
    switch (m) {
      case ZYDIS_MNEMONIC_LEA:
      case ZYDIS_MNEMONIC_SHR:
      case ZYDIS_MNEMONIC_CMP:
      case ZYDIS_MNEMONIC_JNZ:
      case ZYDIS_MNEMONIC_JMP:
      case ZYDIS_MNEMONIC_PUSH:
      case ZYDIS_MNEMONIC_POP:
      case ZYDIS_MNEMONIC_MOV:
      case ZYDIS_MNEMONIC_LAHF:
      case ZYDIS_MNEMONIC_SAHF:
      case ZYDIS_MNEMONIC_SETO:
      case ZYDIS_MNEMONIC_ADD:
      case ZYDIS_MNEMONIC_CALL:
      case ZYDIS_MNEMONIC_PUSHFQ:
      case ZYDIS_MNEMONIC_POPFQ:
      case ZYDIS_MNEMONIC_NOP: return true;
      default: return false;
    }
  }

  void check_moved_code() {
    for_moved_instructions(module_, [this](const ModulePlace& first, const ModulePlace& last) {
      check_before(first.code_offset, last.code_offset, text_ + first.text_offset);
      check_copy(last.code_offset, text_ + first.text_offset);
      ++verdict_.instructions;
    });
  }

  void check_before(std::uint32_t from, std::uint32_t to, std::uint64_t original) {
    Decoded d;
    std::uint32_t at = from;
    for (; at < to && decode_code(at, d); at += d.z.length) {
      if (may_stand_in_a_check(d.z.mnemonic)) continue;
      complain(fmt::format("V4: {} stands among the checks of {:x}", ZydisMnemonicGetString(d.z.mnemonic), original));
    }
    if (at != to) complain(fmt::format("V4: the checks of {:x} do not end where its copy begins", original));
  }

  void check_copy(std::uint32_t at, std::uint64_t address) {
    Decoded o;
    Decoded m;
    if (!decode_text(address, o) || !decode_code(at, m))
      return complain(fmt::format("V4: nothing stands for {:x}", address));
    const auto wrong = [&](const char* what) { complain(fmt::format("{} for {:x}", what, address)); };
    if (o.is_call()) {
      if (!m.is_jump() || !m.is_relative() || m.target(area(at)) != address) wrong("V3: no jump to the call stands");
      return;
    }
    if (o.is_counted()) {
      // The jump over a jump: loop +2; jmp +5; jmp target.
      Decoded away;
      if (m.z.mnemonic != o.z.mnemonic || m.operands[0].imm.value.s != 2 || !decode_code(at + m.z.length + 2, away) ||
          !leads_to(away.target(area(at) + m.z.length + 2), o.target(address))) {
        wrong("V3: no jump over a jump stands");
      }
      return;
    }
    if (o.is_relative()) {
      if (m.z.mnemonic != o.z.mnemonic || !m.is_relative() || !leads_to(m.target(area(at)), o.target(address)))
        wrong("V3: a jump to elsewhere stands");
      return;
    }
    if (m.z.mnemonic != o.z.mnemonic || m.z.operand_count != o.z.operand_count)
      return wrong("V4: another instruction stands");
    for (unsigned n = 0; n < o.z.operand_count; ++n) {
      const ZydisDecodedOperand& a = o.operands[n];
      const ZydisDecodedOperand& b = m.operands[n];
      bool same = a.type == b.type && a.size == b.size;
      if (a.type == ZYDIS_OPERAND_TYPE_REGISTER) same = same && a.reg.value == b.reg.value;
      if (a.type == ZYDIS_OPERAND_TYPE_IMMEDIATE) same = same && a.imm.value.u == b.imm.value.u;
      if (a.type == ZYDIS_OPERAND_TYPE_MEMORY) {
        same = same && a.mem.base == b.mem.base && a.mem.index == b.mem.index && a.mem.scale == b.mem.scale &&
               a.mem.segment == b.mem.segment;
        if (a.mem.base == ZYDIS_REGISTER_RIP) {
          same = same && address + o.z.length + static_cast<std::uint64_t>(a.mem.disp.value) ==
                             area(at) + m.z.length + static_cast<std::uint64_t>(b.mem.disp.value);
        } else if (a.mem.disp.value != b.mem.disp.value) {
          same = same && leads_to_table_copy(at, m);
        }
      }
      if (!same) return wrong("V4: other operands stand");
    }
  }

  bool leads_to_table_copy(std::uint32_t at, const Decoded& m) const {
    const std::uint32_t operand = at + m.z.raw.disp.offset;
    return std::ranges::find(module_.table_operands, operand) != module_.table_operands.end();
  }

  const Program& program_;
  const RewrittenModule& module_;
  ZydisDecoder decoder_;
  std::uint64_t text_ = 0;
  std::uint64_t text_bytes_ = 0;
  std::vector<bool> begins_;           // by text offset
  std::vector<std::uint8_t> covered_;  // by text offset: patches over it
  std::vector<bool> patched_;          // by text offset: a patch begins
  std::vector<std::uint32_t> slots_;
  std::vector<std::uint64_t> waiting_;
  std::vector<std::uint32_t> first_place_;  // by text offset
  Verdict verdict_;
};

}  // namespace

Verdict verify_module(const Program& program, const RewrittenModule& module) {
  return Verifier(program, module).run();
}

}  // namespace penumbra::rewrite
