#include "instrument/rewrite/decoder.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "instrument/rewrite/capstone_view.h"
#include "instrument/rewrite/zydis_view.h"

namespace penumbra::rewrite {
namespace {

// R2: known to Zydis and our reading, unknown to Capstone 4.0.2, and simple enough to be believed.
constexpr ZydisMnemonic kZydisAlone[] = {
    ZYDIS_MNEMONIC_NOP,       ZYDIS_MNEMONIC_MOV,           ZYDIS_MNEMONIC_INCSSPD,          ZYDIS_MNEMONIC_INCSSPQ,
    ZYDIS_MNEMONIC_RDSSPD,    ZYDIS_MNEMONIC_RDSSPQ,        ZYDIS_MNEMONIC_RDPKRU,           ZYDIS_MNEMONIC_WRPKRU,
    ZYDIS_MNEMONIC_GF2P8MULB, ZYDIS_MNEMONIC_GF2P8AFFINEQB, ZYDIS_MNEMONIC_GF2P8AFFINEINVQB, ZYDIS_MNEMONIC_CLWB,
    ZYDIS_MNEMONIC_MOVDIRI,   ZYDIS_MNEMONIC_MOVDIR64B,
};

std::optional<std::int64_t> direct_target(const ZydisView& z) {
  const ZydisDecodedOperand& op = z.operands[0];
  if (op.type != ZYDIS_OPERAND_TYPE_IMMEDIATE || !op.imm.is_relative) return std::nullopt;
  return static_cast<std::int64_t>(kProbeAddress + z.instruction.length) + op.imm.value.s;
}

bool same_control_flow(const ZydisView& z, const CapstoneView& c, Flow flow) {
  const bool jumps = c.in_group(X86_GRP_JUMP);
  const bool calls = c.in_group(X86_GRP_CALL);
  const bool returns = c.in_group(X86_GRP_RET);
  const cs_x86& detail = c.detail();
  const bool direct = detail.op_count == 1 && detail.operands[0].type == X86_OP_IMM;
  switch (flow) {
    case Flow::kConditionalJump:
    case Flow::kCountedJump:
    case Flow::kJump:
      return (jumps || flow == Flow::kCountedJump) && direct && direct_target(z) == detail.operands[0].imm;
    case Flow::kCall: return calls && direct && direct_target(z) == detail.operands[0].imm;
    case Flow::kIndirectJump: return jumps && !direct;
    case Flow::kIndirectCall: return calls && !direct;
    case Flow::kReturn: return returns;
    case Flow::kNext: return !jumps && !calls && !returns;
    case Flow::kTrap:
    case Flow::kSystemCall: return !jumps && !returns;
  }
  return false;
}

// Base, index, scale and displacement of explicit operands, under R7 to R10.
bool same_memory_operands(const ZydisView& z, const CapstoneView& c, const Layout& layout) {
  std::vector<const ZydisDecodedOperand*> theirs;
  const bool is_string = is_string_instruction(z.instruction);
  for (const ZydisDecodedOperand& op : z.all()) {
    if (op.type != ZYDIS_OPERAND_TYPE_MEMORY) continue;
    if (op.visibility == ZYDIS_OPERAND_VISIBILITY_EXPLICIT || is_string) theirs.push_back(&op);
  }
  std::vector<const cs_x86_op*> ours;
  const cs_x86& detail = c.detail();
  for (unsigned i = 0; i < detail.op_count; ++i) {
    if (detail.operands[i].type == X86_OP_MEM) ours.push_back(&detail.operands[i]);
  }
  if (theirs.size() != ours.size()) return false;
  if (is_string) {
    RegSet a = 0;
    RegSet b = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      a |= reg(register_of(theirs[i]->mem.base));
      b |= reg(register_of(ours[i]->mem.base));
    }
    return a == b;
  }
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const auto& a = theirs[i]->mem;
    const x86_op_mem& b = ours[i]->mem;
    const bool moffs =
        a.base == ZYDIS_REGISTER_NONE && a.index == ZYDIS_REGISTER_NONE && layout.displacement_bytes == 0;
    if (moffs) {
      if (b.base != X86_REG_INVALID || b.index != X86_REG_INVALID) return false;
      continue;
    }
    if (register_of(a.base) != register_of(static_cast<x86_reg>(b.base))) return false;
    const bool evex_index = layout.is_evex && theirs[i]->mem.type != ZYDIS_MEMOP_TYPE_VSIB;
    const Register index = register_of(static_cast<x86_reg>(b.index));
    const bool scatter_index = layout.is_evex && theirs[i]->mem.type == ZYDIS_MEMOP_TYPE_VSIB && index >= 0;
    if (register_of(a.index) != index && !(evex_index && index == kVector) && !scatter_index) return false;
    if (a.index != ZYDIS_REGISTER_NONE && a.scale != b.scale) return false;
    if (a.disp.value != b.disp) return false;
  }
  return true;
}

std::uint64_t hash_key(const FormKey& key) {
  std::uint64_t words[2];
  std::memcpy(words, key.bytes.data(), sizeof words);
  std::uint64_t h = (words[0] ^ (words[1] * 0x9e3779b97f4a7c15u)) * 0xd6e8feb86659fd93u;
  h ^= h >> 32;
  return h * 0xd6e8feb86659fd93u ^ (h >> 29);
}

std::int64_t read_signed(const std::uint8_t* at, unsigned bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, std::min(bytes, 8u));
  const unsigned shift = 64 - 8 * bytes;
  return bytes >= 8 ? static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value << shift) >> shift;
}

}  // namespace

struct Decoder::Impl {
  ZydisDecoder zydis;
  const CapstoneLibrary& library = capstone_library();
  csh capstone = 0;

  Impl() {
    if (ZYAN_FAILED(ZydisDecoderInit(&zydis, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)) ||
        library.open(CS_ARCH_X86, CS_MODE_64, &capstone) != CS_ERR_OK ||
        library.option(capstone, CS_OPT_DETAIL, CS_OPT_ON) != CS_ERR_OK) {
      throw std::runtime_error("cannot start the instruction decoders");
    }
  }

  ~Impl() { library.close(&capstone); }

  Form judge(std::span<const std::uint8_t> bytes, const Layout& layout) const;
};

// What both decoders and the layout together say of one instruction.
Form Decoder::Impl::judge(std::span<const std::uint8_t> bytes, const Layout& layout) const {
  Form form;
  form.length = layout.length;
  form.displacement_offset = layout.displacement_offset;
  form.displacement_bytes = layout.displacement_bytes;
  form.immediate_offset = layout.immediate_offset;
  form.immediate_bytes = layout.immediate_bytes;

  ZydisView z;
  const bool zydis_knows =
      ZYAN_SUCCESS(ZydisDecoderDecodeFull(&zydis, bytes.data(), bytes.size(), &z.instruction, z.operands.data()));
  CapstoneView c(capstone);
  const bool capstone_knows = c.decode(bytes);
  if (!zydis_knows) {
    form.doubt = capstone_knows ? Doubt::kOneDecoderOnly : Doubt::kUndecodable;
    return form;
  }
  form.doubt = Doubt::kNone;
  form.mnemonic = static_cast<std::uint16_t>(z.instruction.mnemonic);
  if (z.instruction.length != layout.length || (capstone_knows && c.instruction().size != layout.length)) {
    form.doubt = Doubt::kLength;  // R1
    return form;
  }
  form.flow = flow_of(z);
  form.has_rep = has_rep(z.instruction) && is_string_instruction(z.instruction);
  form.is_nop = z.instruction.mnemonic == ZYDIS_MNEMONIC_NOP || z.instruction.meta.category == ZYDIS_CATEGORY_WIDENOP;
  form.is_rip_relative = false;
  for (const ZydisDecodedOperand& op : z.all()) {
    if (op.type == ZYDIS_OPERAND_TYPE_MEMORY && register_of(op.mem.base) == kRip) form.is_rip_relative = true;
  }
  form.is_wide_address = z.instruction.mnemonic == ZYDIS_MNEMONIC_LEA && form.is_rip_relative;
  if (form.flow == Flow::kConditionalJump) form.condition = z.instruction.opcode & 15;
  form.kills_need_immediate = is_shift(z.instruction.mnemonic) && layout.immediate_bytes != 0;
  if (layout.displacement_bytes == 1) {
    for (const ZydisDecodedOperand& op : z.all()) {
      if (op.type == ZYDIS_OPERAND_TYPE_MEMORY && op.mem.disp.has_displacement && z.instruction.raw.disp.value != 0) {
        form.displacement_scale = static_cast<std::uint8_t>(op.mem.disp.value / z.instruction.raw.disp.value);
      }
    }
  }

  const RegisterUse from_zydis = zydis_use(z);
  RegisterUse use = from_zydis;
  if (capstone_knows) {
    if (!same_control_flow(z, c, form.flow)) form.doubt = Doubt::kControlFlow;
    if (form.doubt == Doubt::kNone && !same_memory_operands(z, c, layout)) form.doubt = Doubt::kMemoryOperands;
    const RegisterUse from_capstone = c.use();  // R3
    use.reads |= from_capstone.reads;
    use.kills &= from_capstone.kills;
    use.touches |= from_capstone.touches;
  } else if (!layout.is_vex && std::ranges::find(kZydisAlone, z.instruction.mnemonic) == std::end(kZydisAlone)) {
    form.doubt = Doubt::kOneDecoderOnly;  // R2
  }
  if (is_zero_idiom(z)) use.reads &= ~reg(register_of(z.operands[0].reg.value));
  form.reads = use.reads;
  form.kills = use.kills;
  form.touches = use.touches;
  if (form.flow == Flow::kSystemCall) form.reads = kEverything;
  if (!take_memory_operands(z, form) && form.doubt == Doubt::kNone) form.doubt = Doubt::kUnsupported;
  if (form.doubt == Doubt::kNone && is_unsupported(z, layout, form)) form.doubt = Doubt::kUnsupported;
  return form;
}

Decoder::Decoder() : impl_(std::make_unique<Impl>()), table_(1u << 12) {}

Decoder::~Decoder() = default;

std::uint32_t Decoder::decode(std::span<const std::uint8_t> bytes) {
  const std::optional<Layout> layout = read_layout(bytes);
  if (!layout) {
    // One form for all that is no instruction; its key cannot be that of one.
    static constexpr FormKey kNone{};
    return intern(kNone, {}, Layout{});
  }
  return intern(form_key(bytes, *layout), bytes.first(layout->length), *layout);
}

std::uint32_t Decoder::intern(const FormKey& key, std::span<const std::uint8_t> bytes, const Layout& layout) {
  const std::size_t mask = table_.size() - 1;
  std::size_t slot = hash_key(key) & mask;
  while (table_[slot] != 0) {
    if (keys_[table_[slot] - 1] == key) return table_[slot] - 1;
    slot = (slot + 1) & mask;
  }
  Form form;
  if (!bytes.empty()) {
    // Displacement and immediate belong to no form: ones in their place, so that a scaled displacement shows its
    // scale and a shift count is not zero.
    std::array<std::uint8_t, kMaxInstructionBytes> probe{};
    std::copy(bytes.begin(), bytes.end(), probe.begin());
    std::fill_n(probe.begin() + layout.displacement_offset, layout.displacement_bytes, std::uint8_t{1});
    std::fill_n(probe.begin() + layout.immediate_offset, layout.immediate_bytes, std::uint8_t{1});
    form = impl_->judge(std::span(probe).first(layout.length), layout);
  }
  const auto number = static_cast<std::uint32_t>(forms_.size());
  forms_.push_back(form);
  keys_.push_back(key);
  table_[slot] = number + 1;
  if (forms_.size() * 2 > table_.size()) grow();
  return number;
}

void Decoder::grow() {
  std::vector<std::uint32_t> larger(table_.size() * 2);
  const std::size_t mask = larger.size() - 1;
  for (std::uint32_t number = 0; number < keys_.size(); ++number) {
    std::size_t slot = hash_key(keys_[number]) & mask;
    while (larger[slot] != 0) slot = (slot + 1) & mask;
    larger[slot] = number + 1;
  }
  table_ = std::move(larger);
}

Form Decoder::decode_afresh(std::span<const std::uint8_t> bytes) const {
  const std::optional<Layout> layout = read_layout(bytes);
  return layout ? impl_->judge(bytes.first(layout->length), *layout) : Form{};
}

const char* Decoder::mnemonic(const Form& form) const {
  const char* name = ZydisMnemonicGetString(static_cast<ZydisMnemonic>(form.mnemonic));
  return name != nullptr ? name : "?";
}

std::int64_t displacement(const Form& form, std::span<const std::uint8_t> bytes) {
  if (form.displacement_bytes == 0) return 0;
  return read_signed(bytes.data() + form.displacement_offset, form.displacement_bytes) * form.displacement_scale;
}

std::int64_t immediate(const Form& form, std::span<const std::uint8_t> bytes) {
  if (form.immediate_bytes == 0) return 0;
  return read_signed(bytes.data() + form.immediate_offset, form.immediate_bytes);
}

std::uint64_t branch_target(const Form& form, std::span<const std::uint8_t> bytes, std::uint64_t address) {
  return address + form.length + static_cast<std::uint64_t>(immediate(form, bytes));
}

std::uint64_t rip_relative_target(const Form& form, std::span<const std::uint8_t> bytes, std::uint64_t address) {
  return address + form.length + static_cast<std::uint64_t>(displacement(form, bytes));
}

RegSet kills(const Form& form, std::span<const std::uint8_t> bytes) {
  // Counts are taken modulo 32 or 64; 32 in a 64-bit shift counts as 0 here, which only costs precision.
  if (form.kills_need_immediate && (immediate(form, bytes) & 31) == 0) return form.kills & kAllRegisters;
  return form.kills;
}

}  // namespace penumbra::rewrite
