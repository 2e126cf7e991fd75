#include "tests/rewrite/differential/generate.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>
#include <string_view>

namespace penumbra::rewrite {
namespace {

// `!` in front: leaves flags undefined. `c`: changes rcx. Placeholders in braces are explained in Generator::operand.
struct Template {
  unsigned level;
  std::string_view text;
};

constexpr Template kTemplates[] = {
    // Moves of every size, both directions, high bytes.
    {0, "mov {d64}, {m64}"},
    {0, "mov {m64}, {d64}"},
    {0, "mov {d32}, {m32}"},
    {0, "mov {m32}, {d32}"},
    {0, "mov {d16}, {m16}"},
    {0, "mov {m16}, {d16}"},
    {0, "mov {d8}, {m8}"},
    {0, "mov {m8}, {d8}"},
    {0, "mov {h8}, {mh}"},
    {0, "mov {mh}, {h8}"},
    {0, "mov {m8}, {i8}"},
    {0, "mov {m64}, {i32}"},
    {0, "mov {d32}, {i32}"},
    {0, "mov {d64}, {d64}"},
    {0, "movzx {d32}, {m8}"},
    {0, "movzx {d32}, {m16}"},
    {0, "movsx {d64}, {m16}"},
    {0, "movsxd {d64}, {m32}"},
    {0, "movnti {m64}, {d64}"},
    {0, "lea {d64}, {mem}"},
    {0, "xchg {m64}, {d64}"},
    {0, "xchg {m8}, {d8}"},
    {0, "bswap {d64}"},
    {0, "cdqe"},
    {0, "cqo"},
    {0, "cwde"},
    {1, "movbe {d64}, {m64}"},
    {1, "movbe {m32}, {d32}"},
    // Arithmetic and flags.
    {0, "add {d64}, {m64}"},
    {0, "add {m32}, {d32}"},
    {0, "adc {d64}, {m64}"},
    {0, "sbb {m64}, {d64}"},
    {0, "adc {m8}, {d8}"},
    {0, "sub {m8}, {i8}"},
    {0, "and {m32}, {i32}"},
    {0, "xor {d64}, {d64}"},
    {0, "or {m16}, {d16}"},
    {0, "cmp {m64}, {d64}"},
    {0, "cmp {d8}, {m8}"},
    {0, "cmp {m16}, {i8}"},
    {0, "test {m32}, {d32}"},
    {0, "test {m8}, {i8}"},
    {0, "inc {m64}"},
    {0, "dec {m16}"},
    {0, "neg {m32}"},
    {0, "not {m64}"},
    {0, "inc {d64}"},
    {0, "dec {d8}"},
    {0, "add {d64}, {i8}"},
    {0, "sub {d32}, {d32}"},
    {0, "cmp {d64}, {d64}"},
    {0, "!imul {d64}, {m64}"},
    {0, "!imul {d32}, {m32}, {i8}"},
    {0, "!mul {m64}"},
    {0, "!imul {m8}"},
    {0, "!mov {d32}, 77; xor edx, edx; mov r8d, 12345; div r8"},
    {0, "shl {m32}, 3"},
    {0, "sar {d64}, cl"},
    {0, "shr {m64}, cl"},
    {0, "rol {d32}, 5"},
    {0, "rcr {m64}, 1"},
    {0, "rcl {d64}, 3"},
    {0, "ror {m16}, cl"},
    {0, "!shld {m64}, {d64}, 7"},
    {0, "!shrd {m32}, {d32}, cl"},
    {0, "!bsf {d64}, {m64}"},
    {0, "!bsr {d32}, {m32}"},
    {0, "!tzcnt {d64}, {m64}"},
    {0, "!lzcnt {d32}, {m32}"},
    {0, "popcnt {d64}, {m64}"},
    {0, "set{cc} {m8}"},
    {0, "set{cc} {d8}"},
    {0, "cmov{cc} {d64}, {m64}"},
    {0, "cmov{cc} {d32}, {d32}"},
    {0, "lahf"},
    {0, "sahf"},
    {0, "stc"},
    {0, "clc"},
    {0, "cmc"},
    {0, "crc32 {d64}, {m64}"},
    {0, "crc32 {d32}, {m8}"},
    {1, "adcx {d64}, {m64}"},
    {1, "adox {d64}, {m64}"},
    {1, "!andn {d64}, {d64}, {m64}"},
    {1, "!bextr {d64}, {m64}, {d64}"},
    {1, "!blsr {d32}, {m32}"},
    {1, "pdep {d64}, {d64}, {m64}"},
    {1, "pext {d32}, {d32}, {m32}"},
    {1, "mulx r8, r10, {m64}"},
    {1, "rorx {d64}, {m64}, 9"},
    {1, "shlx {d64}, {m64}, {d64}"},
    {1, "sarx {d32}, {m32}, {d32}"},
    // Bits, atomics, tables.
    {0, "!bt {a64}, r9"},
    {0, "!bts {a32}, r13d"},
    {0, "!btr {a16}, r9w"},
    {0, "!btc {m64}, 5"},
    {0, "!btc {a64}, r13"},
    {0, "!lock bts {a32}, r9d"},
    {0, "!bt {d64}, {d64}"},
    {0, "xadd {m32}, {d32}"},
    {0, "lock add {m64}, {i8}"},
    {0, "lock xadd {m64}, {d64}"},
    {0, "lock cmpxchg {m64}, {d64}"},
    {0, "cmpxchg {m8}, {d8}"},
    {0, "lock inc {m16}"},
    {0, "lock cmpxchg8b {m64}"},
    {0, "lock cmpxchg16b xmmword ptr {ma}"},
    {0, "xlatb"},
    // Indices and pointers.
    {0, "mov r9d, {i6}"},
    {0, "movzx r9d, {m8}; and r9d, 127"},
    {0, "mov r13d, {i6}"},
    {0, "movzx r13d, dl; and r13d, 63"},
    {0, "c mov ecx, {i6}"},
    {0, "add rsi, 8"},
    {0, "lea rdi, [rdi + 3]"},
    {0, "sub r12, 16"},
    {0, "lea r12, [r12 + 5]"},
    {0, "add rbx, 64"},
    {0, "lea r14, [r14 - 64]"},
    // Strings.
    {0, "movsb"},
    {0, "movsq"},
    {0, "stosd"},
    {0, "lodsw"},
    {0, "scasb"},
    {0, "cmpsd"},
    {0, "c mov ecx, {i6}; rep movsb"},
    {0, "c mov ecx, {i4}; rep movsq"},
    {0, "c mov ecx, {i6}; rep stosw"},
    {0, "c mov ecx, {i6}; rep stosb"},
    {0, "c mov ecx, {i4}; rep lodsd"},
    {0, "c mov ecx, {i6}; repne scasb"},
    {0, "c mov ecx, {i6}; repe cmpsb"},
    {0, "c mov ecx, {i4}; repne cmpsq"},
    {0, "c mov ecx, {i4}; repe scasw"},
    {0, "c std; mov ecx, {i6}; rep movsb; cld"},
    {0, "c std; mov ecx, {i4}; rep stosq; cld"},
    {0, "std; lodsb; cld"},
    {0, "c std; mov ecx, {i6}; repe cmpsb; cld"},
    {0, "c xor ecx, ecx; rep movsb"},
    {0, "c xor ecx, ecx; repe cmpsb"},
    // SSE.
    {0, "movups {x}, {m128}"},
    {0, "movups {m128}, {x}"},
    {0, "movdqu {x}, {m128}"},
    {0, "movaps {x}, {ma}"},
    {0, "movdqa {ma}, {x}"},
    {0, "movq {x}, {m64}"},
    {0, "movd {m32}, {x}"},
    {0, "movss {x}, {m32}"},
    {0, "movsd {m64}, {x}"},
    {0, "movhps {x}, {m64}"},
    {0, "movlps {m64}, {x}"},
    {0, "addps {x}, {ma}"},
    {0, "mulsd {x}, {m64}"},
    {0, "comisd {x}, {m64}"},
    {0, "ucomiss {x}, {m32}"},
    {0, "cvtsi2sd {x}, {m64}"},
    {0, "cvttsd2si {d64}, {m64}"},
    {0, "pshufb {x}, {ma}"},
    {0, "pinsrb {x}, {m8}, 3"},
    {0, "pextrq {m64}, {x}, 1"},
    {0, "movntdq {ma}, {x}"},
    {0, "lddqu {x}, {m128}"},
    {0, "pmovmskb {d32}, {x}"},
    {0, "ptest {x}, {ma}"},
    {0, "pmovzxbw {x}, {m64}"},
    {0, "pmovsxbq {x}, {m16}"},
    {0, "roundsd {x}, {m64}, 1"},
    {0, "insertps {x}, {m32}, 0x10"},
    {0, "extractps {m32}, {x}, 2"},
    {0, "maskmovdqu {x}, {x}"},
    {0, "movddup {x}, {m64}"},
    {0, "c pcmpistri {x}, {m128}, 0"},
    {0, "c pcmpestri {x}, {m128}, 8"},
    {0, "movq mm0, {m64}; paddb mm0, {m64}; movq {m64}, mm0; maskmovq mm0, mm1; emms"},
    {0, "stmxcsr {m32}"},
    // x87. An image of the unit holds the address of its last instruction, so the unit is reset before one is stored.
    {0, "fld {m64}; fadd {m32}; fstp {m64}"},
    {0, "fild {m16}; fistp {m32}"},
    {0, "fld {m80}; fstp {m80}"},
    {0, "fnstcw {m16}"},
    {0, "fnstsw {m16}"},
    {0, "fild {m64}; fisttp {m64}"},
    {0, "fld1; fbstp {m80}"},
    {0, "fninit; fxsave {ma}"},
    {0, "fninit; fnsave {mem}"},
    {0, "fninit; fnstenv {mem}"},
    // AVX.
    {1, "vmovdqu {y}, {m256}"},
    {1, "vmovups {m256}, {y}"},
    {1, "vaddps {y}, {y}, {m256}"},
    {1, "vbroadcastss {y}, {m32}"},
    {1, "vbroadcastf128 {y}, {m128}"},
    {1, "vpmaskmovd {y}, {y}, {mem}"},
    {1, "vpmaskmovq {mem}, {y}, {y}"},
    {1, "vmaskmovps {mem}, {x}, {x}"},
    {1, "vmaskmovpd {y}, {y}, {mem}"},
    {1, "vinserti128 {y}, {y}, {m128}, 1"},
    {1, "vextracti128 {m128}, {y}, 1"},
    {1, "vpmovzxbd {y}, {m64}"},
    {1, "vptest {y}, {m256}"},
    {1, "vzeroupper"},
    {1, "vcvtps2ph {m128}, {y}, 0"},
    {1, "vmaskmovdqu {x}, {x}"},
    {1, "vmovss {x}, {m32}"},
    {1, "vfmadd231sd {x}, {x}, {m64}"},
    {1, "vpsrld ymm1, ymm1, 26; vpcmpeqd ymm2, ymm2, ymm2; vpgatherdd ymm3, [rsi + ymm1 * 4], ymm2"},
    {1, "vpsrld xmm1, xmm1, 26; vpgatherdq ymm3, [r12 + xmm1 * 8 + 24], ymm4"},
    {1, "vpsrlq ymm1, ymm1, 58; vgatherqps xmm3, [rdi + ymm1 * 2], xmm2"},
    {1, "vpsrlq xmm5, xmm5, 58; vgatherqpd xmm3, [rbx + xmm5], xmm2"},
    // AVX-512.
    {2, "vbroadcasti32x4 {Z}, {m128}"},
    {2, "vbroadcastss {Z}{KZ}, {m32}"},
    {2, "vpunpckldq {Z}{K}, {Z}, {m512}"},
    {2, "vpdpbusd {Z}{K}, {Z}, {m512}"},
    {2, "vpackuswb {Z}{K}, {Z}, {m512}"},
    {2, "vcvtpd2ps ymm9{K}, {m512}"},
    {2, "kmovw {k}, {d32}"},
    {2, "kmovq {k}, {m64}"},
    {2, "kmovb {m8}, {k}"},
    {2, "vmovdqu64 {Z}, {m512}"},
    {2, "vmovdqu8 {Z}{K}, {m512}"},
    {2, "vmovups {m512}{K}, {Z}"},
    {2, "vmovdqu16 {m512}{K}, {Z}"},
    {2, "vmovupd {Z}{KZ}, {m512}"},
    {2, "vmovdqu32 {X}, {m128}"},
    {2, "vmovdqu64 {m128}{K}, {X}"},
    {2, "vpaddd {Z}{KZ}, {Z}, {mem}{{1to16}}"},
    {2, "vaddpd {Z}, {Z}, {mem}{{1to8}}"},
    {2, "vpexpandd {Z}{KZ}, {mem}"},
    {2, "vpcompressd {mem}{K}, {Z}"},
    {2, "vpcompressb {mem}{K}, {Z}"},
    {2, "vpexpandw {Z}{K}, {mem}"},
    {2, "vpsrld zmm5, zmm5, 26; vpscatterdd [rbx + zmm5 * 4]{K}, {Z}"},
    {2, "vpsrlq zmm25, zmm25, 58; vscatterqpd [r12 + zmm25 * 2 + 64]{K}, {Z}"},
    {2, "vpsrlq zmm8, zmm8, 58; vpgatherqq zmm7{K}, [rsi + zmm8 * 8]"},
    {2, "vpsrld ymm18, ymm18, 27; vpgatherdq zmm17{K}, [rdi + ymm18 * 8]"},
    {2, "vpsrlq zmm8, zmm8, 58; vpgatherqd ymm7{K}, [r14 + zmm8 * 4 + 0x100]"},
    {2, "vpmovdb {m128}{K}, {Z}"},
    {2, "vpmovusqw {m128}{K}, {Z}"},
    {2, "vmovss xmm1{K}, {m32}"},
    {2, "vmovsd {m64}{K}, xmm3"},
    {2, "vcmpps {k}, {Z}, {m512}, 1"},
    {2, "vpcmpeqb {k}{K}, {Z}, {m512}"},
    {2, "vfmadd231ps {Z}{K}, {Z}, {m512}"},
    {2, "vbroadcasti64x4 {Z}{KZ}, {m256}"},
    {2, "vextracti32x4 {m128}{K}, {Z}, 2"},
    {2, "vcvtps2pd {Z}{K}, {m256}"},
    {2, "vpmovzxbd {Z}{K}, {m128}"},
    {2, "vpermb {Z}{K}, {Z}, {m512}"},
};

constexpr std::array kConditions = {"o", "no", "b", "ae", "e", "ne", "be", "a",
                                    "s", "ns", "p", "np", "l", "ge", "le", "g"};
constexpr std::array kData = {"rax", "rdx", "r8", "r10", "r11"};
constexpr std::array kData32 = {"eax", "edx", "r8d", "r10d", "r11d"};
constexpr std::array kData16 = {"ax", "dx", "r8w", "r10w", "r11w"};
constexpr std::array kData8 = {"al", "dl", "r8b", "r10b", "r11b"};
constexpr std::array kFrameRegisters = {"rax", "rdx", "r8", "r9", "r10", "r11"};
constexpr std::array kAllRegisters64 = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                        "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

constexpr unsigned kFrameSlots = 12;
constexpr unsigned kRedZoneSlots = 5;
constexpr unsigned kHelpers = 12;
constexpr unsigned kMostLevels = 3;
constexpr unsigned kDeepest = 3;  // of nested blocks

class Generator {
 public:
  Generator(std::uint64_t seed, unsigned level) : random_(seed), level_(level) {}

  GeneratedModule run(unsigned roots) {
    GeneratedModule module;
    module.helpers = kHelpers;
    std::string table = ".data\n.balign 64\n.globl helper_table\nhelper_table:\n";
    for (unsigned n = 0; n < kHelpers; ++n) {
      const std::string name = "helper" + std::to_string(n);
      function(name, false, n);
      table += ".quad " + name + "\n";
    }
    for (unsigned n = 0; n < roots; ++n) {
      const std::string name = "root" + std::to_string(n);
      function(name, true, kHelpers);
      module.roots.push_back(name);
    }
    table += ".balign 64\n.globl module_data\n.type module_data,@object\nmodule_data:\ndata_here:\n.zero " +
             std::to_string(kModuleDataBytes) + "\n";
    module.assembly = out_ + ".section .rodata\n" + tables_ + table + ".text\n";
    return module;
  }

 private:
  enum class Frame { kLeaf, kPushes, kPointer };

  unsigned pick(unsigned count) { return static_cast<unsigned>(random_() % count); }
  bool chance(unsigned percent) { return pick(100) < percent; }

  template <class List>
  std::string one_of(const List& list) {
    return list[pick(static_cast<unsigned>(list.size()))];
  }

  void line(const std::string& text) { out_ += "  " + text + "\n"; }
  std::string label() { return ".L" + std::to_string(labels_++); }

  std::string address(unsigned bytes, bool legacy, bool may_be_stack = true) {
    if (!legacy && may_be_stack && bytes <= 64 && chance(18)) {
      if (frame_ == Frame::kLeaf) {
        if (bytes <= 8) return "[rsp - " + std::to_string(8 * (1 + pick(kRedZoneSlots))) + "]";
      } else {
        const unsigned room = kFrameSlots * 8 - bytes;
        if (frame_ == Frame::kPointer && chance(50)) return "[rbp - " + std::to_string(bytes + pick(room + 1)) + "]";
        return "[rsp + " + std::to_string(pick(room + 1)) + "]";
      }
    }
    if (!legacy && chance(4) && bytes <= 64)
      return "data_here[rip + " + std::to_string(256 + pick(kModuleDataBytes - 256 - bytes)) + "]";
    std::vector<std::string> bases = {"rbx", "rsi", "rdi"};
    if (!legacy) bases.insert(bases.end(), {"r12", "r14"});
    if (!legacy && is_root_ && frame_ != Frame::kPointer) bases.push_back("rbp");
    std::string text = "[" + one_of(bases);
    if (!legacy && chance(4)) text += " * 1";
    const bool indexed = chance(30) && text.find('*') == std::string::npos;
    if (indexed) {
      const std::array<const char*, 3> indices = {"rcx", "r9", "r13"};
      const std::array<const char*, 4> scales = {"1", "2", "4", "8"};
      text += std::string(" + ") + (legacy ? "rcx" : one_of(indices)) + " * " + one_of(scales);
    }
    switch (pick(4)) {
      case 0: break;
      case 1: text += " + " + std::to_string(pick(64)); break;
      case 2: text += " - " + std::to_string(1 + pick(64)); break;
      default: text += " + " + std::to_string(pick(1500)); break;
    }
    return text + "]";
  }

  // What stands for a placeholder:
  //   d64 d32 d16 d8  a data register    h8  ah or dh    m8..m512, m80  memory with its size
  //   a16 a32 a64  the same, never on the stack, for bit strings that reach beyond their operand
  //   mem, mh, ma  memory without its size; without new registers; aligned to 64 bytes
  //   x y  of the first 16, X Z  of all 32 vector registers    k, K, KZ  mask register, as operand or as mask
  //   i4 i6 i8 i32  an immediate    cc  a condition
  std::string operand(std::string_view name) {
    if (name == "d64") return one_of(kData);
    if (name == "d32") return one_of(kData32);
    if (name == "d16") return one_of(kData16);
    if (name == "d8") return one_of(kData8);
    if (name == "h8") return chance(50) ? "ah" : "dh";
    if (name == "mem") return address(112, false);
    if (name == "mh") return address(1, true);
    if (name == "ma") return (chance(50) ? "[rbx" : "[r14") + (" + " + std::to_string(64 * pick(20))) + "]";
    if (name == "x") return "xmm" + std::to_string(pick(16));
    if (name == "y") return "ymm" + std::to_string(pick(16));
    if (name == "X") return "xmm" + std::to_string(pick(32));
    if (name == "Z") return "zmm" + std::to_string(pick(32));
    if (name == "k") return "k" + std::to_string(1 + pick(7));
    if (name == "K") return "{k" + std::to_string(1 + pick(7)) + "}";
    if (name == "KZ") return "{k" + std::to_string(1 + pick(7)) + "}{z}";
    if (name == "i4") return std::to_string(pick(10));
    if (name == "i6") return std::to_string(pick(50));
    if (name == "i8") return std::to_string(static_cast<int>(pick(250)) - 125);
    if (name == "i32") return std::to_string(static_cast<int>(random_() & 0x7fffffff));
    if (name == "cc") return one_of(kConditions);
    if (name == "a16") return "word ptr " + address(2, false, false);
    if (name == "a32") return "dword ptr " + address(4, false, false);
    if (name == "a64") return "qword ptr " + address(8, false, false);
    struct Size {
      std::string_view name;
      unsigned bytes;
      const char* text;
    };
    static constexpr Size kSizes[] = {{"m8", 1, "byte ptr "},       {"m16", 2, "word ptr "},
                                      {"m32", 4, "dword ptr "},     {"m64", 8, "qword ptr "},
                                      {"m80", 10, "tbyte ptr "},    {"m128", 16, "xmmword ptr "},
                                      {"m256", 32, "ymmword ptr "}, {"m512", 64, "zmmword ptr "}};
    for (const Size& size : kSizes) {
      if (size.name == name) return size.text + address(size.bytes, false);
    }
    std::abort();  // a template names what does not exist
  }

  void put_template(std::string_view text) {
    std::string made;
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] != '{') {
        made += text[at];
      } else if (text[at + 1] == '{') {  // literal braces
        const std::size_t end = text.find("}}", at);
        made += text.substr(at + 1, end - at);
        at = end + 1;
      } else {
        const std::size_t end = text.find('}', at);
        made += operand(text.substr(at + 1, end - at - 1));
        at = end;
      }
    }
    for (std::size_t begin = 0; begin < made.size();) {
      const std::size_t end = std::min(made.find("; ", begin), made.size());
      line(made.substr(begin, end - begin));
      begin = end + 2;
    }
  }

  void simple(bool rcx_is_taken) {
    for (;;) {
      const Template& t = kTemplates[pick(std::size(kTemplates))];
      if (t.level > level_) continue;
      std::string_view text = t.text;
      if (text.starts_with("c ")) {
        if (rcx_is_taken) continue;
        text.remove_prefix(2);
      }
      // Large unsized operands do not fit into a frame or a red zone; operand() keeps them out of it.
      const bool undefined = text.starts_with("!");
      if (undefined) text.remove_prefix(1);
      put_template(text);
      if (undefined) put_template("cmp {d64}, {i8}");
      return;
    }
  }

  void call(unsigned callees) {
    if (chance(50)) {
      line("call helper" + std::to_string(pick(callees)));
      return;
    }
    // Helpers of odd numbers may take flags, which only who calls them by name passes on.
    const std::string slot = std::to_string(8 * (pick(callees) & ~1u));
    if (chance(50)) {
      line("call qword ptr [r15 + " + slot + "]");
    } else {
      line("mov rax, [r15 + " + slot + "]");
      line("call rax");
    }
    // Of a callee that nothing names only what the ABI promises holds.
    line("lea rsi, [rbx + " + std::to_string(pick(40)) + "]");
    line("lea rdi, [r14 + " + std::to_string(pick(40)) + "]");
    line("mov ecx, " + std::to_string(pick(40)));
    line("mov r9d, " + std::to_string(pick(100)));
    for (const char* r : {"r8", "r10", "r11"}) line(std::string("mov ") + r + ", rax");
    line("cmp rdx, r13");
  }

  void choose(unsigned depth, bool rcx_is_taken, unsigned callees) {
    const std::string table = label();
    const std::string end = label();
    std::string entries = ".balign 4\n" + table + ":\n";
    put_template("mov eax, {d32}");
    line("and eax, 3");
    line("lea r11, " + table + "[rip]");
    line("movsxd rax, dword ptr [r11 + rax * 4]");
    line("add rax, r11");
    line("notrack jmp rax");
    for (unsigned n = 0; n < 4; ++n) {
      const std::string here = label();
      entries += ".long " + here + " - " + table + "\n";
      out_ += here + ":\n";
      // Moved code jumps elsewhere: nothing may look at the target, nor at the flags of its sum.
      line("mov eax, " + std::to_string(n));
      line("cmp r10, 3");
      block(2, depth + 1, rcx_is_taken, callees);
      if (n != 3) line("jmp " + end);
    }
    out_ += end + ":\n";
    tables_ += entries;
  }

  void block(unsigned items, unsigned depth, bool rcx_is_taken, unsigned callees) {
    const bool leaf = frame_ == Frame::kLeaf;
    for (unsigned n = 0; n < items; ++n) {
      const unsigned kind = pick(100);
      const unsigned inner = 1 + pick(4);
      if (kind < 6 && depth < kDeepest) {
        const std::string end = label();
        line("j" + one_of(kConditions) + " " + end);
        block(inner, depth + 1, rcx_is_taken, callees);
        out_ += end + ":\n";
      } else if (kind < 9 && depth < kDeepest && !rcx_is_taken) {
        const std::string begin = label();
        line("mov ecx, " + std::to_string(1 + pick(4)));
        out_ += begin + ":\n";
        if (chance(50)) {
          block(inner, depth + 1, true, 0);
          line("dec ecx");
          line("jne " + begin);
        } else {  // eight bits of reach
          block(1, kDeepest, true, 0);
          line("loop " + begin);
        }
      } else if (kind < 11 && depth < kDeepest) {
        const std::string end = label();
        line("jrcxz " + end);  // eight bits of reach
        block(1, kDeepest, rcx_is_taken, callees);
        out_ += end + ":\n";
      } else if (kind < 13 && depth + 1 < kDeepest) {
        choose(depth, rcx_is_taken, callees);
      } else if (kind < 18 && !leaf && depth < kDeepest) {
        line("push " + (chance(50) ? one_of(kFrameRegisters) : "qword ptr " + address(8, false)));
        block(inner, depth + 1, rcx_is_taken, callees);
        line("pop " + (chance(50) ? one_of(kData) : "qword ptr " + address(8, false)));
      } else if (kind < 22 && !leaf && !rcx_is_taken && callees != 0) {
        call(callees);
      } else if (kind < 24 && !leaf) {
        line("pushfq");
        line("and qword ptr [rsp], 0x8d5");
        line("pop " + one_of(kData));
      } else if (kind < 25 && !leaf) {
        line("mov " + one_of(kData) + ", [rsp + rcx]");
      } else {
        simple(rcx_is_taken);
      }
    }
  }

  // Everything into module_data, so that every register and flag is live up to here.
  void dump() {
    for (unsigned r = 0; r < 16; ++r) {
      if (r != 4) line("mov data_here[rip + " + std::to_string(8 * r) + "], " + kAllRegisters64[r]);
    }
    line("pushfq");
    line("and qword ptr [rsp], 0xcd5");
    line("pop qword ptr data_here[rip + 128]");
  }

  void function(const std::string& name, bool is_root, unsigned callable) {
    // A helper calls only helpers of the level below, so that the work stays bounded.
    const unsigned levels = kHelpers / kMostLevels;
    const unsigned callees = is_root ? callable : callable / levels * levels;
    is_root_ = is_root;
    frame_ = static_cast<Frame>(pick(3));
    if (is_root) out_ += ".globl " + name + "\n";
    out_ += ".type " + name + ",@function\n" + name + ":\n.cfi_startproc\n";
    if (chance(25)) line("endbr64");
    const bool dumps = is_root && chance(50);
    if (frame_ == Frame::kLeaf) {
      for (unsigned n = 1; n <= kRedZoneSlots; ++n) {
        line("mov [rsp - " + std::to_string(8 * n) + "], " + one_of(kFrameRegisters));
      }
    } else {
      if (frame_ == Frame::kPointer) {
        line("push rbp");
        line("mov rbp, rsp");
      }
      for (unsigned n = 0; n < kFrameSlots; ++n) line("push " + one_of(kFrameRegisters));
    }
    if (is_root || callable % 2 == 0) line("cmp r10, 5");
    block(5 + pick(is_root ? 25 : 12), 0, false, callees);
    if (frame_ == Frame::kPushes) line("lea rsp, [rsp + " + std::to_string(8 * kFrameSlots) + "]");
    if (frame_ == Frame::kPointer) line(chance(50) ? "leave" : "mov rsp, rbp\n  pop rbp");
    if (dumps) dump();
    if (callees != 0 && !dumps && frame_ != Frame::kLeaf && chance(20)) {
      line(!is_root || chance(50) ? "jmp helper" + std::to_string(pick(callees))
                                  : "jmp qword ptr [r15 + " + std::to_string(8 * (pick(callees) & ~1u)) + "]");
    } else {
      line("ret");
    }
    out_ += ".cfi_endproc\n.size " + name + ", .-" + name + "\n";
    if (chance(50)) out_ += ".balign 16\n";
  }

  std::mt19937_64 random_;
  unsigned level_;
  Frame frame_ = Frame::kLeaf;
  bool is_root_ = false;
  unsigned labels_ = 0;
  std::string out_;
  std::string tables_;
};

}  // namespace

GeneratedModule generate_module(std::uint64_t seed, unsigned roots, unsigned vector_level) {
  return Generator(seed, vector_level).run(roots);
}

}  // namespace penumbra::rewrite
