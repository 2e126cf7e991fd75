#include "tests/rewrite/differential/steps.h"

#include <Zydis/Zydis.h>

#include <cpuid.h>
#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

namespace penumbra::rewrite {

void step_handler(void* context);

namespace {

constexpr std::uint64_t kTrapFlag = 0x100;
constexpr std::uintptr_t kModuleBytes = 1 << 20;  // more than any generated module has

Steps* g_steps;
alignas(16) std::uint8_t g_signal_stack[256 << 10];

// The order of gregs is the kernel's; this is by encoding.
constexpr int kRegisterOrder[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                    REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

std::uint64_t general(const ucontext_t& context, ZydisRegister r) {
  if (r == ZYDIS_REGISTER_NONE) return 0;
  const ZydisRegister whole = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, r);
  const auto value =
      static_cast<std::uint64_t>(context.uc_mcontext.gregs[kRegisterOrder[whole - ZYDIS_REGISTER_RAX]]);
  const unsigned width = ZydisRegisterGetWidth(ZYDIS_MACHINE_MODE_LONG_64, r);
  return width == 64 ? value : value & ((std::uint64_t{1} << width) - 1);
}

unsigned component_offset(unsigned component) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  __cpuid_count(0xd, component, a, b, c, d);
  return b;
}

// A vector register's 64 bytes, or a mask register's 8, from the signal frame's xsave image.
std::array<std::uint8_t, 64> vector(const ucontext_t& context, ZydisRegister r) {
  std::array<std::uint8_t, 64> bytes{};
  const auto* image = reinterpret_cast<const std::uint8_t*>(context.uc_mcontext.fpregs);
  std::uint64_t present = 0;
  std::memcpy(&present, image + 512, 8);
  const auto take = [&](unsigned component, std::size_t from, std::size_t to, std::size_t count) {
    if ((present >> component & 1) != 0) std::memcpy(bytes.data() + to, image + from, count);
  };
  const auto number = static_cast<unsigned>(ZydisRegisterGetId(r));
  switch (ZydisRegisterGetClass(r)) {
    case ZYDIS_REGCLASS_MMX: take(0, 32 + 16 * number, 0, 8); break;
    case ZYDIS_REGCLASS_MASK: take(5, component_offset(5) + 8 * number, 0, 8); break;
    default:
      if (number >= 16) {
        take(7, component_offset(7) + 64 * (number - 16), 0, 64);
      } else {
        take(1, 160 + 16 * number, 0, 16);
        take(2, component_offset(2) + 16 * number, 16, 16);
        take(6, component_offset(6) + 32 * number, 32, 32);
      }
  }
  return bytes;
}

std::uint64_t little_endian(const std::uint8_t* at, unsigned bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, bytes);
  return value;
}

bool has_rep(const ZydisDecodedInstruction& z) {
  return (z.attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)) != 0;
}

bool is_one_of(ZydisMnemonic m, std::initializer_list<ZydisMnemonic> list) {
  return std::find(list.begin(), list.end(), m) != list.end();
}

// Exception classes without fault suppression read their whole operand whatever the mask says.
bool suppresses_faults(const ZydisDecodedInstruction& z) {
  switch (z.meta.exception_class) {
    case ZYDIS_EXCEPTION_CLASS_E1NF:
    case ZYDIS_EXCEPTION_CLASS_E3NF:
    case ZYDIS_EXCEPTION_CLASS_E4NF:
    case ZYDIS_EXCEPTION_CLASS_E5NF:
    case ZYDIS_EXCEPTION_CLASS_E6NF:
    case ZYDIS_EXCEPTION_CLASS_E9NF:
    case ZYDIS_EXCEPTION_CLASS_E10NF: return false;
    default: return true;
  }
}

}  // namespace

void Steps::begin(std::uintptr_t base, Machine& state) {
  base_ = base;
  stack_ = state.general[4];
  entered_ = false;
  accesses_.clear();
  steps_.clear();
  previous_ = 0;
  g_steps = this;
  const stack_t stack{g_signal_stack, 0, sizeof g_signal_stack};
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_sigaction = [](int, siginfo_t*, void* context) { step_handler(context); };
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGTRAP, &action, nullptr);
  state.flags |= kTrapFlag;
}

void Steps::end() {
  g_steps = nullptr;
  signal(SIGTRAP, SIG_DFL);
}

void step_handler(void* opaque) {
  auto* const context = static_cast<ucontext_t*>(opaque);
  if (g_steps == nullptr) std::abort();
  const auto pc = static_cast<std::uintptr_t>(context->uc_mcontext.gregs[REG_RIP]);
  if (g_steps->traces_) {
    Step& step = g_steps->steps_.emplace_back();
    step.pc = pc;
    for (unsigned r = 0; r < 16; ++r)
      step.general[r] = static_cast<std::uint64_t>(context->uc_mcontext.gregs[kRegisterOrder[r]]);
    step.flags = static_cast<std::uint64_t>(context->uc_mcontext.gregs[REG_EFL]);
  }
  if (pc - g_steps->base_ < kModuleBytes) {
    g_steps->entered_ = true;
    g_steps->look(context);
  } else if (g_steps->entered_ &&
             static_cast<std::uintptr_t>(context->uc_mcontext.gregs[REG_RSP]) >= g_steps->stack_) {
    // Back in machine_run().
    context->uc_mcontext.gregs[REG_EFL] &= ~static_cast<greg_t>(kTrapFlag);
  }
}

void Steps::look(const void* opaque) {
  const auto& context = *static_cast<const ucontext_t*>(opaque);
  const auto pc = static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
  static ZydisDecoder decoder = [] {
    ZydisDecoder d;
    ZydisDecoderInit(&d, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    return d;
  }();
  ZydisDecodedInstruction z;
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, reinterpret_cast<const void*>(pc), 15, &z, operands.data())))
    return;
  const bool repeats = has_rep(z) && z.meta.category == ZYDIS_CATEGORY_STRINGOP;
  if (repeats && general(context, ZYDIS_REGISTER_RCX) == 0) return;
  for (unsigned n = 0; n < z.operand_count; ++n) {
    const ZydisDecodedOperand& op = operands[n];
    if (op.type != ZYDIS_OPERAND_TYPE_MEMORY || op.mem.type == ZYDIS_MEMOP_TYPE_AGEN) continue;
    if (op.visibility != ZYDIS_OPERAND_VISIBILITY_EXPLICIT && op.mem.base == ZYDIS_REGISTER_RSP) continue;
    if (op.mem.base == ZYDIS_REGISTER_RIP || z.meta.category == ZYDIS_CATEGORY_WIDENOP) continue;
    Access access;
    access.pc = pc;
    access.operand = n;
    access.is_write = (op.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0;
    std::uintptr_t address = general(context, op.mem.base) + static_cast<std::uintptr_t>(op.mem.disp.value);
    // pop names its operand as it is when rsp has been raised.
    if (z.mnemonic == ZYDIS_MNEMONIC_POP && op.mem.base == ZYDIS_REGISTER_RSP) address += 8;
    const std::size_t bytes = op.size / 8;
    const ZydisDecodedOperand& first = operands[0];
    const bool evex_masked = z.encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX && z.avx.mask.reg != ZYDIS_REGISTER_NONE &&
                             z.avx.mask.reg != ZYDIS_REGISTER_K0;
    const std::uint64_t k =
        evex_masked ? little_endian(vector(context, z.avx.mask.reg).data(), 8) : ~std::uint64_t{0};
    if (op.mem.type == ZYDIS_MEMOP_TYPE_VSIB) {
      const auto indices = vector(context, op.mem.index);
      // Suffix d or q before the element's: 32 or 64 bits of index.
      const char* const name = ZydisMnemonicGetString(z.mnemonic);
      const bool wide = std::strstr(name, "therq") != nullptr || std::strstr(name, "tterq") != nullptr;
      const std::size_t element = op.element_size / 8;
      const ZydisDecodedOperand& data = access.is_write ? operands[z.operand_count_visible - 1] : first;
      const unsigned index_bytes = wide ? 8 : 4;
      const unsigned count =
          std::min<unsigned>(ZydisRegisterGetWidth(ZYDIS_MACHINE_MODE_LONG_64, op.mem.index) / 8 / index_bytes,
                             data.size / 8 / static_cast<unsigned>(element));
      for (unsigned i = 0; i < count; ++i) {
        bool on = (k >> i & 1) != 0;
        if (z.encoding == ZYDIS_INSTRUCTION_ENCODING_VEX) {
          on = (vector(context, operands[2].reg.value)[(i + 1) * element - 1] & 0x80) != 0;
        }
        if (!on) continue;
        std::int64_t index = 0;
        if (wide) {
          index = static_cast<std::int64_t>(little_endian(indices.data() + 8 * i, 8));
        } else {
          index = static_cast<std::int32_t>(little_endian(indices.data() + 4 * i, 4));
        }
        access.pieces.emplace_back(address + static_cast<std::uintptr_t>(index * op.mem.scale), element);
      }
      access.is_plain = false;
    } else {
      const bool table = z.mnemonic == ZYDIS_MNEMONIC_XLAT;
      address += table ? general(context, ZYDIS_REGISTER_AL) : general(context, op.mem.index) * op.mem.scale;
      const auto signs = [&](const ZydisDecodedOperand& mask, std::size_t element) {
        const auto bits = vector(context, mask.reg.value);
        for (std::size_t i = 0; i < bytes / element; ++i) {
          if ((bits[(i + 1) * element - 1] & 0x80) != 0) access.pieces.emplace_back(address + i * element, element);
        }
        access.is_plain = false;
      };
      if (is_one_of(z.mnemonic, {ZYDIS_MNEMONIC_BT, ZYDIS_MNEMONIC_BTS, ZYDIS_MNEMONIC_BTR, ZYDIS_MNEMONIC_BTC}) &&
          operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER) {
        const unsigned width = op.size;
        auto bit = static_cast<std::int64_t>(general(context, operands[1].reg.value) << (64 - width)) >> (64 - width);
        access.pieces.emplace_back(address + static_cast<std::uintptr_t>(bit >> 3), 1);
        access.is_plain = false;
      } else if (is_one_of(z.mnemonic,
                           {ZYDIS_MNEMONIC_MASKMOVQ, ZYDIS_MNEMONIC_MASKMOVDQU, ZYDIS_MNEMONIC_VMASKMOVDQU})) {
        // The data and the mask are the explicit operands; the memory is implied.
        std::array<const ZydisDecodedOperand*, 2> registers{};
        unsigned found = 0;
        for (unsigned o = 0; o < z.operand_count && found < 2; ++o) {
          if (operands[o].visibility == ZYDIS_OPERAND_VISIBILITY_EXPLICIT &&
              operands[o].type == ZYDIS_OPERAND_TYPE_REGISTER)
            registers[found++] = &operands[o];
        }
        signs(*registers[1], 1);
      } else if (is_one_of(z.mnemonic, {ZYDIS_MNEMONIC_VMASKMOVPS, ZYDIS_MNEMONIC_VPMASKMOVD})) {
        signs(operands[1], 4);
      } else if (is_one_of(z.mnemonic, {ZYDIS_MNEMONIC_VMASKMOVPD, ZYDIS_MNEMONIC_VPMASKMOVQ})) {
        signs(operands[1], 8);
      } else if (evex_masked && (access.is_write || suppresses_faults(z))) {
        const char* const name = ZydisMnemonicGetString(z.mnemonic);
        unsigned count = op.element_count;
        const ZydisDecodedOperand& other = n == 0 ? operands[z.operand_count_visible - 1] : first;
        if (other.type == ZYDIS_OPERAND_TYPE_REGISTER &&
            ZydisRegisterGetClass(other.reg.value) != ZYDIS_REGCLASS_MASK) {
          const unsigned elements = std::max<unsigned>(other.element_count, 1);
          if (z.avx.broadcast.mode == ZYDIS_BROADCAST_MODE_INVALID) count = std::min(count, elements);
        }
        if (std::strstr(name, "compress") != nullptr || std::strstr(name, "expand") != nullptr) {
          const unsigned all = op.element_count;
          const std::uint64_t used = all >= 64 ? k : k & ((std::uint64_t{1} << all) - 1);
          const auto on = static_cast<std::size_t>(__builtin_popcountll(used));
          if (on != 0) access.pieces.emplace_back(address, on * (op.element_size / 8));
        } else if (z.avx.broadcast.mode != ZYDIS_BROADCAST_MODE_INVALID) {
          const unsigned elements = std::max<unsigned>(first.element_count, 1);
          const std::uint64_t used = elements >= 64 ? k : k & ((std::uint64_t{1} << elements) - 1);
          if (used != 0) access.pieces.emplace_back(address, z.avx.broadcast.is_static ? bytes : op.element_size / 8);
        } else {
          for (unsigned i = 0; i < count; ++i) {
            if ((k >> i & 1) != 0) access.pieces.emplace_back(address + i * (bytes / count), bytes / count);
          }
        }
        access.is_plain = false;
      } else if (z.avx.broadcast.mode != ZYDIS_BROADCAST_MODE_INVALID && !z.avx.broadcast.is_static) {
        access.pieces.emplace_back(address, op.element_size / 8);
      } else {
        access.pieces.emplace_back(address, bytes);
        access.is_plain = !repeats && !table && bytes <= 64;
      }
    }
    if (access.pieces.empty()) continue;
    access.begin = ~std::uintptr_t{0};
    for (const auto& [piece, size] : access.pieces) {
      access.begin = std::min(access.begin, piece);
      access.end = std::max(access.end, piece + size);
    }
    access.is_string = repeats;
    if (repeats) {
      // One access for all elements, as long as nothing else ran in between.
      bool joined = false;
      for (std::size_t b = accesses_.size(); b-- > 0 && accesses_[b].pc == pc && previous_ == pc;) {
        if (accesses_[b].operand != n) continue;
        Access& whole = accesses_[b];
        whole.pieces.push_back(access.pieces.front());
        whole.begin = std::min(whole.begin, access.begin);
        whole.end = std::max(whole.end, access.end);
        joined = true;
        break;
      }
      if (joined) continue;
    }
    accesses_.push_back(std::move(access));
  }
  previous_ = pc;
}

}  // namespace penumbra::rewrite
