#include "instrument/rewrite/libc_roles.h"

#include <asm/unistd.h>

#include <algorithm>
#include <array>

namespace penumbra::rewrite {
namespace {

constexpr std::string_view kMark = "__libc_start_main";  // defined by the C library alone

constexpr std::array<std::string_view, 18> kHeapNames = {
    "malloc",         "free",          "calloc",         "realloc",         "memalign",           "aligned_alloc",
    "posix_memalign", "valloc",        "pvalloc",        "cfree",           "malloc_usable_size", "__libc_malloc",
    "__libc_free",    "__libc_calloc", "__libc_realloc", "__libc_memalign", "__libc_valloc",      "__libc_pvalloc"};

constexpr std::uint8_t kMovEax = 0xb8;     // mov eax, imm32
constexpr std::uint8_t kMovRm = 0xc7;      // mov r/m, imm32
constexpr std::uint8_t kMovToRm = 0x89;    // mov r/m, r
constexpr std::uint8_t kMovFromRm = 0x8b;  // mov r, r/m
constexpr std::uint8_t kXorFromRm = 0x33;  // xor r, r/m
constexpr std::uint8_t kXorToRm = 0x31;    // xor r/m, r

// Bytes behind a REX prefix.
std::span<const std::uint8_t> without_rex(std::span<const std::uint8_t> bytes) {
  return (bytes[0] & 0xf0) == 0x40 ? bytes.subspan(1) : bytes;
}

// mov rsp, register or mov rsp, [register + x], but for what frames with a frame pointer do.
bool takes_stack_from_elsewhere(const Form& form, std::span<const std::uint8_t> bytes) {
  if ((form.touches & reg(kRsp)) == 0) return false;
  const auto code = without_rex(bytes);
  if (code.size() < 2) return false;
  const bool is_rex_b = bytes.size() != code.size() && (bytes[0] & 1) != 0;
  const bool is_rex_r = bytes.size() != code.size() && (bytes[0] & 4) != 0;
  if (code[0] == kMovFromRm && ((code[1] >> 3) & 7) == 4 && !is_rex_r) {
    return code[1] >= 0xc0
               ? (code[1] & 7) != 5 || is_rex_b
               : form.operand_count == 1 && form.operands[0].base != kRbp && form.operands[0].base != kRsp;
  }
  return code[0] == kMovToRm && code[1] >= 0xc0 && (code[1] & 7) == 4 && !is_rex_b &&
         (((code[1] >> 3) & 7) != 5 || is_rex_r);
}

}  // namespace

bool is_system_call(const Form& form, std::span<const std::uint8_t> bytes) {
  return form.flow == Flow::kSystemCall && bytes.size() == 2 && bytes[0] == 0x0f && bytes[1] == 0x05;
}

std::int32_t system_call_number(const Program& program, std::uint32_t instruction) {
  const std::uint32_t block_number = program.block_of(instruction);
  if (block_number == kNone) return -1;
  for (std::uint32_t i = instruction; i-- > program.blocks()[block_number].first;) {
    const Form& form = program.form(i);
    if ((form.touches & reg(kRax)) == 0) continue;
    const auto bytes = program.bytes(i);
    const auto code = without_rex(bytes);
    if (code[0] == kMovEax && (bytes[0] & 0xf9) != 0x49) return static_cast<std::int32_t>(immediate(form, bytes));
    if (code[0] == kMovRm && code.size() >= 2 && code[1] == 0xc0)
      return static_cast<std::int32_t>(immediate(form, bytes));
    if ((code[0] == kXorFromRm || code[0] == kXorToRm) && code[1] == 0xc0 && bytes.size() == code.size()) return 0;
    return -1;
  }
  return -1;
}

bool changes_context(const Program& program, const Function& function) {
  bool loads_stack = false;
  bool jumps = false;
  for (std::uint32_t i = function.first; i < function.first + function.count; ++i) {
    const Form& form = program.form(i);
    const auto bytes = program.bytes(i);
    if (is_system_call(form, bytes)) {
      switch (system_call_number(program, i)) {
        case __NR_clone:
        case __NR_clone3:
        case __NR_vfork:
        case __NR_rt_sigreturn: return true;
        default: break;
      }
    }
    if (!takes_stack_from_elsewhere(form, bytes)) continue;
    loads_stack = true;
    jumps |= form.operand_count != 0;  // a saved context: nothing else keeps a stack pointer behind another register
  }
  const auto& tables = program.tables();
  for (std::uint32_t i = function.first; loads_stack && i < function.first + function.count; ++i) {
    const Form& form = program.form(i);
    if (form.flow != Flow::kIndirectJump || form.operand_count != 0) continue;
    const auto table = std::ranges::lower_bound(tables, i, {}, &JumpTable::jump);
    jumps |= table == tables.end() || table->jump != i;
  }
  return loads_stack && jumps;
}

std::vector<LibcRole> find_libc_roles(const Program& program) {
  std::vector<LibcRole> roles(program.functions().size(), LibcRole::kNone);
  const ElfImage& image = program.image();
  const auto& symbols = image.symbols();
  if (!std::ranges::any_of(symbols, [](const Symbol& s) { return s.is_dynamic && s.name == kMark; })) return roles;
  for (const Symbol& symbol : symbols) {
    const std::uint32_t f = program.function_at(symbol.address);
    if (f == kNone || program.functions()[f].range.begin != symbol.address) continue;
    if (std::ranges::find(kHeapNames, symbol.name) != kHeapNames.end()) roles[f] = LibcRole::kHeapEntry;
  }
  std::vector<std::uint32_t> waits;
  const auto add = [&](std::uint64_t address) {
    const std::uint32_t f = program.function_at(address);
    if (f == kNone || roles[f] == LibcRole::kStringVariant) return;
    roles[f] = LibcRole::kStringVariant;
    waits.push_back(f);
  };
  for (const std::uint64_t resolver : image.resolvers()) {
    const std::uint32_t f = program.function_at(resolver);
    if (f == kNone) continue;
    const Function& function = program.functions()[f];
    for (std::uint32_t i = function.first; i < function.first + function.count; ++i) {
      if (!program.form(i).is_wide_address) continue;
      const std::uint64_t named = rip_relative_target(program.form(i), program.bytes(i), program.address(i));
      const std::uint32_t variant = program.function_at(named);
      if (variant != kNone && program.functions()[variant].range.begin == named) add(named);
    }
  }
  // Tails that variants share.
  while (!waits.empty()) {
    const Function& function = program.functions()[waits.back()];
    waits.pop_back();
    for (std::uint32_t i = function.first; i < function.first + function.count; ++i) {
      const Form& form = program.form(i);
      if (form.flow != Flow::kJump && form.flow != Flow::kConditionalJump) continue;
      const std::uint64_t target = branch_target(form, program.bytes(i), program.address(i));
      if (target < function.range.begin || target >= function.range.end) add(target);
    }
    if (function.count == 0) continue;
    const Flow last = program.form(function.first + function.count - 1).flow;
    if (last != Flow::kReturn && last != Flow::kJump && last != Flow::kIndirectJump && last != Flow::kTrap &&
        last != Flow::kCall)
      add(function.range.end);
  }
  return roles;
}

}  // namespace penumbra::rewrite
