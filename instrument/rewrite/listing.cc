#include "instrument/rewrite/listing.h"

#include <Zydis/Zydis.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>

namespace penumbra::rewrite {
namespace {

constexpr std::size_t kOriginalColumn = 48;

class Listing {
 public:
  Listing(const Program& program, const RewrittenModule& module, const Function& function)
      : program_(program), module_(module), function_(function) {
    ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    ZydisFormatterInit(&formatter_, ZYDIS_FORMATTER_STYLE_INTEL);
  }

  std::string run() {
    out_ = fmt::format("{} at {:x}, {} bytes\n", name(), function_.range.begin,
                       function_.range.end - function_.range.begin);
    if (function_.block_count == 0) {
      out_ += "  not rewritten: it holds an instruction that is not believed\n";
      return out_;
    }
    find_places();
    if (first_ == last_) {
      out_ += "  not rewritten: nothing in it is to be checked, or it is left alone by rule\n";
      return out_;
    }
    name_slow_parts();
    list_code();
    list_slow_parts();
    list_patches();
    return out_;
  }

 private:
  struct Decoded {
    ZydisDecodedInstruction instruction;
    std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
    std::uint32_t at = 0;
  };

  std::string name() const {
    for (const Symbol& s : program_.image().symbols()) {
      if (s.address == function_.range.begin) return std::string(s.name);
    }
    return "a function";
  }

  std::uint32_t text_offset(std::uint64_t address) const {
    return static_cast<std::uint32_t>(address - program_.text_begin());
  }
  std::uint64_t original(std::uint32_t offset) const { return program_.text_begin() + offset; }

  // The function's records are those of its instructions, one behind the other; its slow parts stand elsewhere.
  void find_places() {
    const auto& places = module_.places;
    const auto is_ours = [&](const ModulePlace& p) {
      return p.text_offset >= text_offset(function_.range.begin) && p.text_offset < text_offset(function_.range.end);
    };
    first_ = static_cast<std::size_t>(std::ranges::find_if(places, is_ours) - places.begin());
    last_ = first_;
    while (last_ < places.size() && is_ours(places[last_])) ++last_;
    end_ = last_ < places.size() ? places[last_].code_offset : static_cast<std::uint32_t>(module_.code.size());
  }

  bool decode(std::uint32_t at, Decoded& result) const {
    result.at = at;
    const auto end = static_cast<std::uint32_t>(module_.code.size());
    return at < end && ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder_, module_.code.data() + at, end - at,
                                                           &result.instruction, result.operands.data()));
  }

  void name_slow_parts() {
    Decoded d;
    for (std::uint32_t at = module_.places[first_].code_offset; at < end_ && decode(at, d);
         at += d.instruction.length) {
      if (d.instruction.meta.category != ZYDIS_CATEGORY_COND_BR) continue;
      const std::uint32_t to = target(d);
      const bool is_slow = std::ranges::any_of(module_.checks, [&](const ModuleCheck& check) {
        return check.is_special == 0 && check.return_offset > to && check.return_offset - to <= kMostThunkBytes &&
               is_thunk(to);
      });
      if (is_slow) slow_.emplace(to, slow_.size() + 1);
    }
  }

  bool is_thunk(std::uint32_t at) const {
    auto state = std::ranges::upper_bound(module_.states, at, {}, &ModuleState::code_offset);
    return state != module_.states.begin() && (--state)->is_thunk != 0;
  }

  std::uint32_t target(const Decoded& d) const {
    std::uint64_t absolute = 0;
    ZydisCalcAbsoluteAddress(&d.instruction, d.operands.data(), d.at, &absolute);
    return static_cast<std::uint32_t>(absolute);
  }

  // Where code at this offset leads, in the original's terms; `address` is the link-time address.
  std::string place_name(std::uint64_t address) const {
    const std::uint64_t at = address - static_cast<std::uint64_t>(module_.area_address);
    if (at >= module_.code.size() + kSlotBytes) return fmt::format("{:x}", address);
    if (at >= module_.code.size()) return slot_name(static_cast<unsigned>((at - module_.code.size()) / 8));
    const auto slow = slow_.find(static_cast<std::uint32_t>(at));
    if (slow != slow_.end()) return fmt::format("slow {}", slow->second);
    auto place =
        std::ranges::upper_bound(module_.places, static_cast<std::uint32_t>(at), {}, &ModulePlace::code_offset);
    if (place == module_.places.begin()) return "the table copy";
    --place;
    // A slow part comes back behind its check, where the instruction has one more place.
    const bool is_first = place == module_.places.begin() || std::prev(place)->text_offset != place->text_offset;
    return fmt::format("moved {:x}{}", original(place->text_offset),
                       is_first && place->code_offset == at ? "" : ", behind a check");
  }

  static std::string slot_name(unsigned slot) {
    if (slot == kSpecialSlot) return "the routine of special checks";
    if (slot == kSystemCallSlot) return "the routine before a system call";
    if (slot == kSystemReturnSlot) return "the routine behind a system call";
    const auto scratch = static_cast<ZydisRegister>(ZYDIS_REGISTER_RAX + slot / kSlotSpans);
    return fmt::format("the routine for {}, {} bytes", ZydisRegisterGetString(scratch), slot % kSlotSpans + 1);
  }

  std::string text_of(const Decoded& d) {
    const std::uint64_t address = static_cast<std::uint64_t>(module_.area_address) + d.at;
    const ZydisDecodedOperand& first = d.operands[0];
    const bool jumps = first.type == ZYDIS_OPERAND_TYPE_IMMEDIATE && first.imm.is_relative;
    const bool calls_slot = d.instruction.mnemonic == ZYDIS_MNEMONIC_CALL &&
                            first.type == ZYDIS_OPERAND_TYPE_MEMORY && first.mem.base == ZYDIS_REGISTER_RIP;
    std::uint64_t absolute = 0;
    if ((jumps || calls_slot) &&
        ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(&d.instruction, d.operands.data(), address, &absolute))) {
      return fmt::format("{} {}", ZydisMnemonicGetString(d.instruction.mnemonic), place_name(absolute));
    }
    std::array<char, 160> text{};
    ZydisFormatterFormatInstruction(&formatter_, &d.instruction, d.operands.data(),
                                    d.instruction.operand_count_visible, text.data(), text.size(), address,
                                    ZYAN_NULL);
    return text.data();
  }

  std::string original_text(std::uint32_t instruction) {
    Decoded d;
    const auto bytes = program_.bytes(instruction);
    if (!ZYAN_SUCCESS(
            ZydisDecoderDecodeFull(&decoder_, bytes.data(), bytes.size(), &d.instruction, d.operands.data())))
      return "?";
    std::array<char, 160> text{};
    ZydisFormatterFormatInstruction(&formatter_, &d.instruction, d.operands.data(),
                                    d.instruction.operand_count_visible, text.data(), text.size(),
                                    program_.address(instruction), ZYAN_NULL);
    return fmt::format("{:x}  {}", program_.address(instruction), text.data());
  }

  void line(const std::string& left, const std::string& right) {
    out_ +=
        right.empty() ? fmt::format("  {}\n", left) : fmt::format("  {:<{}}|  {}\n", left, kOriginalColumn, right);
  }

  std::uint32_t end_of(std::size_t place) const {
    return place + 1 < last_ ? module_.places[place + 1].code_offset : end_;
  }

  void list_code() {
    std::uint32_t previous = kNone;
    for (std::size_t n = first_; n < last_ && !is_thunk(module_.places[n].code_offset); ++n) {
      const ModulePlace& place = module_.places[n];
      std::string left;
      if (place.text_offset != previous) left = original_text(program_.instruction_at(original(place.text_offset)));
      previous = place.text_offset;
      const std::size_t before = out_.size();
      Decoded d;
      for (std::uint32_t at = place.code_offset; at < end_of(n) && decode(at, d); at += d.instruction.length) {
        if (is_thunk(at) || d.instruction.mnemonic == ZYDIS_MNEMONIC_INT3) break;
        line(left, text_of(d));
        left.clear();
      }
      if (out_.size() == before && !left.empty()) line(left, "");
    }
  }

  void list_slow_parts() {
    for (const auto& [begin, number] : slow_) {
      out_ += fmt::format("slow {}\n", number);
      Decoded d;
      for (std::uint32_t at = begin; decode(at, d); at += d.instruction.length) {
        line("", text_of(d));
        const auto check =
            std::ranges::lower_bound(module_.checks, at + d.instruction.length, {}, &ModuleCheck::return_offset);
        if (check != module_.checks.end() && check->return_offset == at + d.instruction.length) {
          for (std::uint32_t a = 0; a < check->access_count; ++a) {
            const ModuleAccess& access = module_.accesses[check->first_access + a];
            line(fmt::format("{:x}  {} of {} bytes", original(access.text_offset),
                             access.is_write != 0 ? "write" : "read", access.size),
                 "");
          }
        }
        if (d.instruction.mnemonic == ZYDIS_MNEMONIC_JMP) break;
      }
    }
  }

  void list_patches() {
    for (const ModulePatch& patch : module_.patches) {
      const std::uint64_t at = original(patch.text_offset);
      if (at < function_.range.begin || at >= function_.range.end + function_.padding) continue;
      switch (patch.kind) {
        case ModulePatch::kJump5:
          out_ += fmt::format("patch {:x}: jmp {}\n", at,
                              place_name(static_cast<std::uint64_t>(module_.area_address) + patch.target));
          break;
        case ModulePatch::kJump2:
          out_ += fmt::format("patch {:x}: jmp short {:x}\n", at, original(patch.target));
          break;
        case ModulePatch::kCall:
          out_ += fmt::format("patch {:x}: call {}\n", at,
                              place_name(static_cast<std::uint64_t>(module_.area_address) + patch.target));
          break;
      }
    }
  }

  static constexpr std::uint32_t kMostThunkBytes = 64;

  const Program& program_;
  const RewrittenModule& module_;
  const Function& function_;
  ZydisDecoder decoder_;
  ZydisFormatter formatter_;
  std::size_t first_ = 0;
  std::size_t last_ = 0;
  std::uint32_t end_ = 0;
  std::map<std::uint32_t, std::size_t> slow_;  // code offset, number in the order of the checks
  std::string out_;
};

}  // namespace

std::string list_function(const Program& program, const RewrittenModule& module, std::uint32_t function) {
  return Listing(program, module, program.functions()[function]).run();
}

std::uint32_t find_function(const Program& program, const std::string& name) {
  std::uint64_t address = 0;
  if (name.starts_with("0x")) {
    address = std::strtoull(name.c_str(), nullptr, 16);
  } else {
    for (const Symbol& s : program.image().symbols()) {
      if (s.name == name && program.image().is_code(s.address)) address = s.address;
    }
  }
  const std::uint32_t function = program.function_at(address);
  if (function == kNone) return kNone;
  const FrameRange& range = program.functions()[function].range;
  return address >= range.begin && address < range.end ? function : kNone;
}

}  // namespace penumbra::rewrite
