#include "tests/rewrite/verify_liveness.h"

#include <Zydis/Zydis.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace penumbra::rewrite {
namespace {

constexpr std::size_t kMostCalls = 12;       // on a path at a time
constexpr std::size_t kMostSteps = 200'000;  // instructions, for one check

// Registers by their encoding, then CF, PF, AF, ZF, SF, OF.
using Needs = std::uint32_t;
constexpr unsigned kFlagShift = 16;
constexpr Needs kFlags = 0x3fu << kFlagShift;
constexpr Needs bit(unsigned r) {
  return Needs{1} << r;
}
enum : unsigned { kAx, kCx, kDx, kBx, kSp, kBp, kSi, kDi, kR8, kR9, kR10 };
// System V ABI for x86-64, 3.2.1, 3.2.3 and A.2.1.
constexpr Needs kKept = bit(kBx) | bit(kBp) | bit(12) | bit(13) | bit(14) | bit(15);
constexpr Needs kCallTakes = bit(kDi) | bit(kSi) | bit(kDx) | bit(kCx) | bit(kR8) | bit(kR9) | bit(kAx) | bit(kR10);
constexpr Needs kCallGives = bit(kAx) | bit(kDx);
constexpr Needs kKernelTakes = bit(kAx) | bit(kDi) | bit(kSi) | bit(kDx) | bit(kR10) | bit(kR8) | bit(kR9);

int register_of(ZydisRegister r) {
  const ZydisRegister whole = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, r);
  return whole >= ZYDIS_REGISTER_RAX && whole <= ZYDIS_REGISTER_R15 ? whole - ZYDIS_REGISTER_RAX : -1;
}

Needs flag_bits(ZydisAccessedFlagsMask flags) {
  Needs bits = 0;
  const ZydisAccessedFlagsMask each[] = {ZYDIS_CPUFLAG_CF, ZYDIS_CPUFLAG_PF, ZYDIS_CPUFLAG_AF,
                                         ZYDIS_CPUFLAG_ZF, ZYDIS_CPUFLAG_SF, ZYDIS_CPUFLAG_OF};
  for (unsigned n = 0; n < std::size(each); ++n) {
    if ((flags & each[n]) != 0) bits |= bit(kFlagShift + n);
  }
  return bits;
}

enum class Way : std::uint8_t { kOn, kJump, kBranch, kIndirect, kCall, kIndirectCall, kReturn, kKernel, kEnd };

struct Step {
  Needs reads = 0;
  Needs kills = 0;
  std::uint64_t target = 0;
  std::uint8_t length = 0;
  Way way = Way::kOn;
  bool is_by_pointer = false;  // an indirect jump through a pointer that memory holds: a tail call
};

bool changes_nothing_where_count_is_0(const ZydisDecodedInstruction& z, const ZydisDecodedOperand* operands) {
  if ((z.attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)) != 0) return true;
  switch (z.mnemonic) {
    case ZYDIS_MNEMONIC_SHL:
    case ZYDIS_MNEMONIC_SHR:
    case ZYDIS_MNEMONIC_SAR:
    case ZYDIS_MNEMONIC_ROL:
    case ZYDIS_MNEMONIC_ROR:
    case ZYDIS_MNEMONIC_RCL:
    case ZYDIS_MNEMONIC_RCR:
    case ZYDIS_MNEMONIC_SHLD:
    case ZYDIS_MNEMONIC_SHRD:
      return std::any_of(operands, operands + z.operand_count_visible, [](const ZydisDecodedOperand& o) {
        return o.type == ZYDIS_OPERAND_TYPE_REGISTER && o.reg.value == ZYDIS_REGISTER_CL;
      });
    default: return false;
  }
}

bool is_zero_idiom(const ZydisDecodedInstruction& z, const ZydisDecodedOperand* operands) {
  return (z.mnemonic == ZYDIS_MNEMONIC_XOR || z.mnemonic == ZYDIS_MNEMONIC_SUB || z.mnemonic == ZYDIS_MNEMONIC_SBB) &&
         operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER && operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
         operands[0].reg.value == operands[1].reg.value;
}

void fill_effects(const ZydisDecodedInstruction& z, const ZydisDecodedOperand* operands, Step& step) {
  const bool may_do_nothing = changes_nothing_where_count_is_0(z, operands);
  const bool is_zero = is_zero_idiom(z, operands);
  for (unsigned n = 0; n < z.operand_count; ++n) {
    const ZydisDecodedOperand& o = operands[n];
    if (o.type == ZYDIS_OPERAND_TYPE_MEMORY) {
      for (const ZydisRegister r : {o.mem.base, o.mem.index}) {
        if (const int number = register_of(r); number >= 0) step.reads |= bit(static_cast<unsigned>(number));
      }
    }
    if (o.type != ZYDIS_OPERAND_TYPE_REGISTER) continue;
    const int number = register_of(o.reg.value);
    if (number < 0) continue;
    if ((o.actions & ZYDIS_OPERAND_ACTION_MASK_READ) != 0 && !(is_zero && n < 2))
      step.reads |= bit(static_cast<unsigned>(number));
    // Thirty-two bits clear the others.
    if ((o.actions & ZYDIS_OPERAND_ACTION_WRITE) != 0 && o.size >= 32 && !may_do_nothing)
      step.kills |= bit(static_cast<unsigned>(number));
  }
  if (z.cpu_flags != nullptr) {
    step.reads |= flag_bits(z.cpu_flags->tested);
    if (!may_do_nothing) {
      step.kills |=
          flag_bits(z.cpu_flags->modified | z.cpu_flags->set_0 | z.cpu_flags->set_1 | z.cpu_flags->undefined);
    }
  }
}

void fill_way(const ZydisDecodedInstruction& z, const ZydisDecodedOperand* operands, std::uint64_t address,
              Step& step) {
  const bool is_direct =
      z.operand_count != 0 && operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE && operands[0].imm.is_relative != 0;
  if (is_direct) step.target = address + z.length + static_cast<std::uint64_t>(operands[0].imm.value.s);
  switch (z.meta.category) {
    case ZYDIS_CATEGORY_CALL: step.way = is_direct ? Way::kCall : Way::kIndirectCall; break;
    case ZYDIS_CATEGORY_RET: step.way = Way::kReturn; break;
    case ZYDIS_CATEGORY_UNCOND_BR:
      step.way = is_direct ? Way::kJump : Way::kIndirect;
      step.is_by_pointer =
          operands[0].type == ZYDIS_OPERAND_TYPE_MEMORY && operands[0].mem.index == ZYDIS_REGISTER_NONE;
      break;
    case ZYDIS_CATEGORY_COND_BR: step.way = Way::kBranch; break;
    case ZYDIS_CATEGORY_SYSCALL: step.way = Way::kKernel; break;
    default: break;
  }
  switch (z.mnemonic) {
    case ZYDIS_MNEMONIC_UD0:
    case ZYDIS_MNEMONIC_UD1:
    case ZYDIS_MNEMONIC_UD2:
    case ZYDIS_MNEMONIC_INT3:
    case ZYDIS_MNEMONIC_HLT: step.way = Way::kEnd; break;
    default: break;
  }
}

// What the checks in a stretch of moved code leave changed, by following values through it.
class Stretch {
 public:
  Stretch() {
    for (unsigned r = 0; r < 16; ++r) values_[r] = r;
  }

  void take(const ZydisDecodedInstruction& z, const ZydisDecodedOperand* operands) {
    const int to = operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER ? register_of(operands[0].reg.value) : -1;
    switch (z.mnemonic) {
      case ZYDIS_MNEMONIC_PUSH: pushed_.push_back(values_[static_cast<unsigned>(to)]); return;
      case ZYDIS_MNEMONIC_POP: values_[static_cast<unsigned>(to)] = take_pushed(); return;
      case ZYDIS_MNEMONIC_PUSHFQ: pushed_.push_back(flags_are_kept_ ? kFlagValue : kLost); return;
      case ZYDIS_MNEMONIC_POPFQ: flags_are_kept_ = take_pushed() == kFlagValue; return;
      case ZYDIS_MNEMONIC_LAHF: values_[kAx] = flags_are_kept_ ? kFlagValue : kLost; return;
      case ZYDIS_MNEMONIC_SETO: return;  // al, beside ah
      case ZYDIS_MNEMONIC_SAHF: flags_are_kept_ = values_[kAx] == kFlagValue; return;
      case ZYDIS_MNEMONIC_ADD: flags_are_kept_ = false; return;  // of al, to have the overflow flag again
      case ZYDIS_MNEMONIC_MOV:
        values_[static_cast<unsigned>(to)] = values_[static_cast<unsigned>(register_of(operands[1].reg.value))];
        return;
      case ZYDIS_MNEMONIC_LEA:
        if (to != kSp) values_[static_cast<unsigned>(to)] = kLost;
        return;
      case ZYDIS_MNEMONIC_SHR:
        values_[static_cast<unsigned>(to)] = kLost;
        flags_are_kept_ = false;
        return;
      case ZYDIS_MNEMONIC_CMP:
      case ZYDIS_MNEMONIC_CALL: flags_are_kept_ = false; return;  // a routine keeps all registers
      default: return;
    }
  }

  Needs changed() const {
    Needs set = flags_are_kept_ ? 0 : kFlags;
    for (unsigned r = 0; r < 16; ++r) {
      if (values_[r] != r) set |= bit(r);
    }
    return set;
  }

 private:
  static constexpr unsigned kFlagValue = 16;
  static constexpr unsigned kLost = 17;

  unsigned take_pushed() {
    if (pushed_.empty()) return kLost;
    const unsigned value = pushed_.back();
    pushed_.pop_back();
    return value;
  }

  std::array<unsigned, 16> values_{};
  std::vector<unsigned> pushed_;
  bool flags_are_kept_ = true;
};

// A path: where it is, what was changed and not yet written over, and the calls that it is in.
struct Path {
  std::uint64_t at = 0;
  Needs changed = 0;
  std::vector<std::uint64_t> returns;

  bool operator==(const Path&) const = default;
};

struct PathHash {
  std::size_t operator()(const Path& p) const {
    std::size_t h = p.at * 0x9e3779b97f4a7c15u ^ p.changed;
    for (const std::uint64_t r : p.returns) h = (h ^ r) * 0x9e3779b97f4a7c15u;
    return h;
  }
};

class Follower {
 public:
  Follower(const Program& program, const RewrittenModule& module) : program_(program), module_(module) {
    ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    text_ = program.text_begin();
    steps_.resize(program.text_end() - text_);
    callers_.resize(program.functions().size());
    jumpers_.resize(program.functions().size());
    pads_.resize(program.functions().size());
    has_unknown_callers_.assign(program.functions().size(), false);
    has_doubted_callers_.assign(program.functions().size(), false);
    read_functions();
  }

  LivenessVerdict run() {
    for_moved_instructions(module_, [this](const ModulePlace& first, const ModulePlace& last) {
      if (&first != &last) look_at(first, last);
    });
    return std::move(verdict_);
  }

 private:
  bool decode(const std::uint8_t* bytes, std::size_t size, ZydisDecodedInstruction& z,
              ZydisDecodedOperand* operands) const {
    return ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder_, bytes, std::min<std::size_t>(size, 15), &z, operands));
  }

  const Step* step_at(std::uint64_t address) const {
    if (address < text_ || address - text_ >= steps_.size() || steps_[address - text_].length == 0) return nullptr;
    return &steps_[address - text_];
  }

  void read_functions() {
    ZydisDecodedInstruction z;
    std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
    const auto& functions = program_.functions();
    for (std::uint32_t f = 0; f < functions.size(); ++f) {
      const Function& function = functions[f];
      for (std::uint64_t at = function.range.begin; at < function.range.end; at += z.length) {
        const auto bytes = program_.image().at(at);
        if (bytes.empty() || !decode(bytes.data(), bytes.size(), z, operands.data())) break;
        Step step;
        step.length = z.length;
        fill_effects(z, operands.data(), step);
        fill_way(z, operands.data(), at, step);
        // What is not understood runs as it is, and is to others what another module is.
        if (function.doubt == Doubt::kNone) steps_[at - text_] = step;
        if (z.mnemonic == ZYDIS_MNEMONIC_LEA && operands[1].mem.base == ZYDIS_REGISTER_RIP)
          name(at + z.length + static_cast<std::uint64_t>(operands[1].mem.disp.value));
        for (unsigned n = 0; n < z.operand_count_visible; ++n) {
          if (operands[n].type == ZYDIS_OPERAND_TYPE_IMMEDIATE && operands[n].imm.is_relative == 0)
            name(operands[n].imm.value.u);
        }
        if (step.way == Way::kCall) note_call(step.target, at + z.length, function);
        if (step.way == Way::kJump || step.way == Way::kBranch) note_jump(f, step.target, function);
      }
      pads_[f] = landing_pads(program_.image(), function.range);
    }
    for (const JumpTable& table : program_.tables()) {
      tables_[program_.address(table.jump)] = &table;
      const std::uint32_t from = program_.function_at(program_.address(table.jump));
      for (const std::uint64_t target : program_.targets(table)) note_jump(from, target, functions[from]);
    }
    for (const std::uint64_t pointer : program_.image().code_pointers()) name(pointer);
    for (const Symbol& s : program_.image().symbols()) {
      if (s.is_dynamic) name(s.address);
    }
  }

  // Somebody may call what begins here who is not seen to.
  void name(std::uint64_t address) {
    const std::uint32_t f = program_.function_at(address);
    if (f != kNone && program_.functions()[f].range.begin == address) has_unknown_callers_[f] = true;
  }

  void note_call(std::uint64_t target, std::uint64_t back, const Function& by) {
    const std::uint32_t f = program_.function_at(target);
    if (f == kNone || program_.functions()[f].range.begin != target) return;
    if (by.doubt == Doubt::kNone) {
      callers_[f].push_back(back);
    } else {
      has_doubted_callers_[f] = true;
    }
  }

  void note_jump(std::uint32_t from, std::uint64_t target, const Function& by) {
    const std::uint32_t f = program_.function_at(target);
    if (f == kNone || f == from) return;
    if (by.doubt != Doubt::kNone) {
      has_doubted_callers_[f] = true;
    } else if (std::ranges::find(jumpers_[f], from) == jumpers_[f].end()) {
      jumpers_[f].push_back(from);
    }
  }

  void look_at(const ModulePlace& first, const ModulePlace& last) {
    ZydisDecodedInstruction z;
    std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
    Stretch stretch;
    for (std::uint32_t at = first.code_offset; at < last.code_offset; at += z.length) {
      if (!decode(module_.code.data() + at, module_.code.size() - at, z, operands.data())) return;
      stretch.take(z, operands.data());
    }
    const std::uint64_t address = text_ + first.text_offset;
    const Step* const step = step_at(address);
    // The routines around a system call are no checks, and behind one everything has been given to the kernel.
    if (stretch.changed() == 0 || step == nullptr || step->way == Way::kKernel) return;
    ++verdict_.checked;
    follow(address, stretch.changed());
  }

  enum class Answer : std::uint8_t { kDead, kNeeded, kUndecided };

  void follow(std::uint64_t address, Needs changed) {
    seen_now_.clear();
    waiting_.clear();
    send({address, changed, {}});
    Answer answer = Answer::kDead;
    std::uint64_t where = 0;
    std::size_t steps = 0;
    while (!waiting_.empty() && answer == Answer::kDead) {
      Path path = std::move(waiting_.back());
      waiting_.pop_back();
      where = path.at;
      while (answer == Answer::kDead && path.at != 0) {
        where = path.at;
        answer = ++steps > kMostSteps ? Answer::kUndecided : advance(path);
      }
    }
    if (answer == Answer::kDead) {
      for (const Path& path : seen_now_) dead_.insert(path);
    } else if (answer == Answer::kUndecided) {
      ++verdict_.undecided;
    } else {
      verdict_.complain(
          fmt::format("L1: a check before {:x} changes {:x}, which {:x} needs", address, changed, where));
    }
  }

  void send(Path path) {
    if (path.changed == 0 || dead_.contains(path) || !seen_now_.insert(path).second) return;
    waiting_.push_back(std::move(path));
  }

  // One instruction on; path.at is 0 where the path ends.
  Answer advance(Path& path) {
    const Step* const step = step_at(path.at);
    if (step == nullptr) return Answer::kNeeded;  // out of known code
    if ((step->reads & path.changed) != 0) return Answer::kNeeded;
    const Needs left = path.changed & ~step->kills;
    const std::uint64_t from = path.at;
    const std::uint64_t next = from + step->length;
    path.at = 0;
    if (left == 0) return Answer::kDead;
    path.changed = left;
    switch (step->way) {
      case Way::kOn: path.at = next; return Answer::kDead;
      case Way::kKernel:
        if ((left & kKernelTakes) != 0) return Answer::kNeeded;
        path.at = next;
        return Answer::kDead;
      case Way::kJump: return jump(path, step->target);
      case Way::kBranch: {
        Path other = path;
        if (const Answer answer = jump(other, step->target); answer != Answer::kDead) return answer;
        if (other.at != 0) send(std::move(other));
        path.at = next;
        return Answer::kDead;
      }
      case Way::kIndirect: {
        const auto table = tables_.find(from);
        if (table == tables_.end()) {
          return !step->is_by_pointer || (left & (kCallTakes | kKept)) != 0 ? Answer::kNeeded : Answer::kDead;
        }
        for (const std::uint64_t target : program_.targets(*table->second)) send({target, left, path.returns});
        return Answer::kDead;
      }
      case Way::kCall:
      case Way::kIndirectCall: return call(path, *step, from, next);
      case Way::kReturn: return come_back(path, from);
      case Way::kEnd: return Answer::kDead;
    }
    return Answer::kDead;
  }

  Answer jump(Path& path, std::uint64_t target) {
    path.at = 0;
    if (step_at(target) != nullptr) {
      path.at = target;
      return Answer::kDead;
    }
    return (path.changed & (kCallTakes | kKept)) != 0 ? Answer::kNeeded
                                                      : Answer::kDead;  // a tail call of another module
  }

  Answer call(Path& path, const Step& step, std::uint64_t from, std::uint64_t next) {
    const std::uint32_t f = program_.function_at(from);
    for (const std::uint64_t pad : pads_[f]) {
      if ((path.changed & kKept) != 0) send({pad, path.changed & kKept, path.returns});
    }
    const bool comes_back = next < program_.functions()[f].range.end;
    const std::uint32_t callee = step.way == Way::kCall ? program_.function_at(step.target) : kNone;
    const bool is_known =
        callee != kNone && program_.functions()[callee].range.begin == step.target && step_at(step.target) != nullptr;
    if (!is_known) {
      if ((path.changed & kCallTakes) != 0) return Answer::kNeeded;
      path.changed &= kKept;
      if (comes_back && path.changed != 0) path.at = next;
      return Answer::kDead;
    }
    if (path.returns.size() == kMostCalls) return Answer::kUndecided;
    path.returns.push_back(comes_back ? next : 0);
    send({step.target, path.changed, std::move(path.returns)});
    return Answer::kDead;
  }

  Answer come_back(Path& path, std::uint64_t from) {
    if (!path.returns.empty()) {
      const std::uint64_t back = path.returns.back();
      path.returns.pop_back();
      if (back != 0) send({back, path.changed, std::move(path.returns)});
      return Answer::kDead;
    }
    // Whoever calls the function, or one that jumps into it.
    std::vector<std::uint32_t> functions = {program_.function_at(from)};
    for (std::size_t n = 0; n < functions.size(); ++n) {
      for (const std::uint32_t by : jumpers_[functions[n]]) {
        if (std::ranges::find(functions, by) == functions.end()) functions.push_back(by);
      }
    }
    for (const std::uint32_t f : functions) {
      const bool is_unknown = has_unknown_callers_[f] || (callers_[f].empty() && jumpers_[f].empty());
      if (is_unknown && (path.changed & (kCallGives | kKept)) != 0) return Answer::kNeeded;
      if (has_doubted_callers_[f]) return Answer::kNeeded;
      for (const std::uint64_t back : callers_[f]) {
        if (step_at(back) != nullptr) send({back, path.changed, {}});
      }
    }
    return Answer::kDead;
  }

  const Program& program_;
  const RewrittenModule& module_;
  ZydisDecoder decoder_;
  std::uint64_t text_ = 0;
  std::vector<Step> steps_;                          // by text offset; length 0 where no instruction begins
  std::vector<std::vector<std::uint64_t>> callers_;  // by function: where its calls come back to
  std::vector<std::vector<std::uint32_t>> jumpers_;  // by function: others that jump into it
  std::vector<std::vector<std::uint64_t>> pads_;     // by function
  std::vector<bool> has_unknown_callers_;
  std::vector<bool> has_doubted_callers_;
  std::unordered_map<std::uint64_t, const JumpTable*> tables_;  // by the jump's address
  std::vector<Path> waiting_;
  std::unordered_set<Path, PathHash> seen_now_;  // for this check
  std::unordered_set<Path, PathHash> dead_;      // on earlier paths that needed nothing
  LivenessVerdict verdict_;
};

}  // namespace

LivenessVerdict verify_liveness(const Program& program, const RewrittenModule& module) {
  return Follower(program, module).run();
}

}  // namespace penumbra::rewrite
