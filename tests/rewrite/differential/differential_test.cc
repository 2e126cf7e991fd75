// Differential execution: random functions run as they are, then rewritten by the real rewriter and loader, and must
// leave the same registers, flags, memory, stack and x87 state behind: with a clean shadow, and with one so full of bad
// bytes that most checks take their slow path and report. What is reported is held against what the accesses really
// were, seen by single-stepping the unmoved code (steps.h).
//
// The seed is fixed; PENUMBRA_FULL=1 tries more seeds. A failure names the seed and the function, and leaves the
// assembly in the test's temporary folder.

#include <gtest/gtest.h>
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <random>

#include "instrument/load/areas.h"
#include "instrument/load/patch.h"
#include "instrument/rewrite/module_file.h"
#include "instrument/rewrite/relocator_x86_64.h"
#include "runtime/base/fault.h"
#include "shadow/address_map.h"
#include "tests/rewrite/assemble.h"
#include "tests/rewrite/differential/generate.h"
#include "tests/rewrite/differential/machine.h"
#include "tests/rewrite/differential/steps.h"

namespace penumbra::rewrite {
namespace {

constexpr std::size_t kArenaBytes = 256 << 10;
constexpr std::size_t kStackBytes = 64 << 10;
constexpr std::size_t kHelperTableBytes = 256;
constexpr unsigned kRoots = 60;

struct Report {
  std::uintptr_t pc;
  std::uintptr_t address;
  std::size_t size;
  bool is_write;
  std::uintptr_t bad;
};

// Written by the fault hook, on the stack of the function that runs: no memory is allocated there.
constexpr std::size_t kMostReports = 1 << 16;
Report g_reports[kMostReports];
std::size_t g_report_count;

void take_report(const Fault& fault) {
  if (g_report_count == kMostReports) return;
  g_reports[g_report_count++] = {fault.context.pc, fault.addr.value, fault.size, fault.is_write, fault.bad.value};
}

// What runs, for whoever reads of a crash.
std::string g_running;
std::uintptr_t g_running_base;

// A generated function that faults by itself, or moved code that does: either way the test is over.
void on_fault(int number, siginfo_t* info, void* opaque) {
  const auto pc = static_cast<std::uintptr_t>(static_cast<ucontext_t*>(opaque)->uc_mcontext.gregs[REG_RIP]);
  const load::Area* area = load::area_of_code(pc);
  const std::uintptr_t original = area != nullptr ? load::original_pc(*area, pc) : pc;
  std::fprintf(stderr, "signal %d at %#lx (%s, module + %#lx), address %p: %s\n", number, pc,
               area != nullptr ? "moved code" : "code in its place", original - g_running_base, info->si_addr,
               g_running.c_str());

  _exit(1);
}

unsigned vector_level() {
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vbmi2")) {
    return 2;
  }
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") ? 1 : 0;
}

// Everything that a function may leave behind.
struct Outcome {
  Machine machine;
  std::vector<std::uint8_t> arena;
  std::vector<std::uint8_t> data;
};

class World {
 public:
  explicit World(std::uint64_t seed) : seed_(seed), level_(vector_level()) {
    machine_vector_level = level_;
    EXPECT_TRUE(shadow::reserve_direct_map().ok());
    generated_ = generate_module(seed, kRoots, level_);
    module_ = std::make_unique<Assembled>(generated_.assembly);
    handle_ = dlopen(module_->path().c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(handle_, nullptr) << dlerror();
    arena_ = map(kArenaBytes + kHelperTableBytes);
    std::mt19937_64 random(seed);
    noise_.resize(kArenaBytes);
    for (std::uint8_t& byte : noise_) byte = static_cast<std::uint8_t>(random());
    stack_ = map(kStackBytes);
    link_map* map_entry = nullptr;
    dlinfo(handle_, RTLD_DI_LINKMAP, &map_entry);
    base_ = map_entry->l_addr;
  }

  ~World() {
    clean_shadow();
    dlclose(handle_);
    if (area_ != nullptr) load::release(area_);
    munmap(reinterpret_cast<void*>(arena_), kArenaBytes + kHelperTableBytes);
    munmap(reinterpret_cast<void*>(stack_), kStackBytes);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const GeneratedModule& generated() const { return generated_; }
  std::uintptr_t arena() const { return arena_; }
  const std::string& path() const { return module_->path(); }

  const void* function(const std::string& name) const { return dlsym(handle_, name.c_str()); }

  // Moves the module's code: from now on its functions run rewritten.
  void rewrite(const RewriteOptions& options) {
    exact_ = options.exact || options.calls_out;
    image_ = std::make_unique<ElfImage>(module_->path());
    program_ = std::make_unique<Program>(*image_, decoder_);
    ASSERT_NO_THROW(program_->validate());
    liveness_ = std::make_unique<Liveness>(*program_);
    ASSERT_NO_THROW(liveness_->validate());
    Relocator relocator(*program_, *liveness_, options);
    rewritten_ = relocator.run();
    const RewrittenModule& module = rewritten_;
    ASSERT_EQ(module.stats.doubted, 0u) << "forms that are not believed:" << doubted_forms();
    const std::string file = module_->path() + ".module";
    const std::string identity = "differential";
    write_module_file(file, module, *image_, {identity, 0});
    load::Area area;
    ASSERT_EQ(load::map_module(file.c_str(), identity.c_str(), area.file), load::MapVerdict::kMapped);
    ASSERT_TRUE(load::make_area(area, base_));
    load::close_file(area.file);
    area_ = load::publish(area);
    ASSERT_NE(area_, nullptr);
    ASSERT_TRUE(load::patch_module(*area_, -1).ok());
    std::remove(file.c_str());
  }

  void take_patches_back() {
    const std::uintptr_t text = base_ + program_->text_begin();
    mprotect(reinterpret_cast<void*>(text), program_->text_end() - program_->text_begin(),
             PROT_READ | PROT_WRITE | PROT_EXEC);
    for (const ModulePatch& patch : rewritten_.patches) {
      const auto bytes = image_->at(program_->text_begin() + patch.text_offset).first(5);
      std::memcpy(reinterpret_cast<void*>(text + patch.text_offset), bytes.data(), bytes.size());
    }
  }

  // Bad bytes here and there: single granules, short runs, partial granules.
  void soil_shadow(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::uint8_t* const shadow = shadow_of_arena();
    for (std::size_t n = 0; n < kArenaBytes / 8;) {
      const std::size_t run = 1 + random() % 6;
      const auto byte = static_cast<std::uint8_t>(random() % 3 == 0 ? 1 + random() % 7 : random() % 2 ? 0xfc : 0xfb);
      for (std::size_t k = 0; k < run && n < kArenaBytes / 8; ++k) shadow[n++] = byte;
      n += random() % 12;
    }
  }
  void clean_shadow() { std::memset(shadow_of_arena(), 0, kArenaBytes / 8); }

  // Runs a function from the state that `seed` stands for.
  Outcome run(const std::string& name, std::uint64_t seed, Steps* steps = nullptr) {
    std::mt19937_64 random(seed);
    auto* const arena = reinterpret_cast<std::uint8_t*>(arena_);
    std::memcpy(arena, noise_.data(), noise_.size());
    std::memcpy(arena + kArenaBytes, dlsym(handle_, "helper_table"), 8 * generated_.helpers);
    std::memset(reinterpret_cast<void*>(stack_), 0, kStackBytes);
    auto* const data = static_cast<std::uint8_t*>(dlsym(handle_, "module_data"));
    for (unsigned n = 0; n < kModuleDataBytes; ++n) data[n] = static_cast<std::uint8_t>(random());
    auto outcome = Outcome{};
    Machine& m = outcome.machine;
    for (std::uint64_t& value : m.general) value = random();
    const auto pointer = [&] { return arena_ + kArenaBytes / 2 + random() % 2048; };
    for (const Register r : {kRbx, kRsi, kRdi, kRbp, kR12, kR14}) m.general[r] = pointer();
    for (const Register r : {kRbx, kR14}) m.general[r] &= ~std::uint64_t{63};
    m.general[kRcx] = random() % 50;
    m.general[kR9] = random() % 128;
    m.general[kR13] = random() % 64;
    m.general[kR15] = arena_ + kArenaBytes;
    m.general[kRsp] = stack_ + kStackBytes - 4096;
    m.flags = (random() & 0x8d5) | 0x202;
    for (std::uint64_t& mask : m.masks) mask = random();
    for (auto& vector : m.vectors) {
      for (unsigned n = 0; n < sizeof vector; n += 8) {
        const std::uint64_t word = random();
        std::memcpy(vector + n, &word, 8);
      }
    }
    __asm__ volatile("fninit; fxsave64 %0" : "=m"(m.x87));
    std::memset(m.x87 + 32, 0, 128);  // what its registers held last
    g_report_count = 0;
    g_running = "seed " + std::to_string(seed_) + ", function " + name + "\n" + keep();
    g_running_base = base_;
    static std::uint8_t signal_stack[64 << 10];
    const stack_t stack{signal_stack, 0, sizeof signal_stack};
    sigaltstack(&stack, nullptr);
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (const int number : {SIGSEGV, SIGILL, SIGFPE, SIGBUS}) sigaction(number, &action, nullptr);
    if (steps != nullptr) steps->begin(base_, m);
    machine_run(&m, function(name));
    if (steps != nullptr) steps->end();
    // Where the unit's last instruction stood is the one thing that moving changes.
    std::memset(m.x87 + 6, 0, 18);
    outcome.arena.assign(arena, arena + kArenaBytes);
    outcome.data.assign(data, data + kModuleDataBytes);
    return outcome;
  }

  // What differs, in words; empty when nothing does.
  std::string difference(const Outcome& plain, const Outcome& moved) const {
    std::string text;
    char part[160];
    for (unsigned r = 0; r < 16; ++r) {
      // What a return to an unknown caller keeps; the functions that promise more have put it into their data.
      constexpr RegSet kKept =
          reg(kRax) | reg(kRdx) | reg(kRbx) | reg(kRsp) | reg(kRbp) | reg(kR12) | reg(kR13) | reg(kR14) | reg(kR15);
      if ((kKept & (RegSet{1} << r)) == 0 || plain.machine.general[r] == moved.machine.general[r]) continue;
      std::snprintf(part, sizeof part, "register %u: %#lx, moved %#lx\n", r, plain.machine.general[r],
                    moved.machine.general[r]);
      text += part;
    }
    if (std::memcmp(plain.machine.masks, moved.machine.masks, sizeof plain.machine.masks) != 0)
      text += "mask registers\n";
    for (unsigned v = 0; v < 32; ++v) {
      if (std::memcmp(plain.machine.vectors[v], moved.machine.vectors[v], 64) == 0) continue;
      text += "vector register " + std::to_string(v) + "\n";
    }
    if (std::memcmp(plain.machine.x87, moved.machine.x87, 160) != 0) text += "x87 state\n";
    const auto compare = [&](const char* what, const std::vector<std::uint8_t>& a,
                             const std::vector<std::uint8_t>& b) {
      if (a == b) return;
      for (std::size_t n = 0; n < a.size(); ++n) {
        if (a[n] == b[n]) continue;
        std::snprintf(part, sizeof part, "%s at %#zx: %#x, moved %#x\n", what, n, a[n], b[n]);
        text += part;
        return;
      }
    };
    compare("arena", plain.arena, moved.arena);
    compare("data (registers by number, then flags, then variables)", plain.data, moved.data);
    return text;
  }

  // The first instruction before which a live register or flag differs between the two.
  std::string first_difference(const std::vector<Step>& plain, const std::vector<Step>& moved) const {
    auto m = moved.begin();
    for (const Step& step : plain) {
      const std::uint32_t i = program_->instruction_at(step.pc - base_);
      if (i == kNone) continue;
      while (m != moved.end() && original_of(m->pc) != step.pc) ++m;
      if (m == moved.end()) return "the moved code never comes to " + at(step.pc) + "\n";
      const std::uint32_t block = program_->block_of(i);
      const RegSet live = liveness_->before_each(block)[i - program_->blocks()[block].first];
      char text[160];
      for (unsigned r = 0; r < 16; ++r) {
        if ((live & (RegSet{1} << r)) == 0 || step.general[r] == m->general[r]) continue;
        std::snprintf(text, sizeof text, "before %s register %u is %#lx, moved %#lx\n", at(step.pc).c_str(), r,
                      step.general[r], m->general[r]);
        return text;
      }
      const std::pair<RegSet, std::uint64_t> flags[] = {
          {kCarry, 1}, {kParity, 4}, {kAdjust, 16}, {kZero, 64}, {kSign, 128}, {kDirection, 1024}, {kOverflow, 2048}};
      for (const auto& [flag, bit] : flags) {
        if ((live & flag) == 0 || ((step.flags ^ m->flags) & bit) == 0) continue;
        std::snprintf(text, sizeof text, "before %s flag %#lx differs\n", at(step.pc).c_str(), bit);
        return text;
      }
      ++m;
    }
    return "no register or flag is the first to differ\n";
  }

  // Keeps the assembly for whoever looks into a failure.
  std::string keep() const {
    const std::string file = ::testing::TempDir() + "penumbra_differential_" + std::to_string(seed_) + ".s";
    std::ofstream(file) << ".intel_syntax noprefix\n.text\n" << generated_.assembly;
    return file;
  }

  std::string doubted_forms() {
    std::string text;
    for (const Function& function : program_->functions()) {
      if (function.doubt == Doubt::kNone) continue;
      for (std::uint64_t at = function.range.begin; at < function.range.end;) {
        const std::uint32_t number = decoder_.decode(image_->at(at).first(function.range.end - at));
        const Form& form = decoder_.form(number);
        if (form.doubt != Doubt::kNone) {
          char part[96];
          std::snprintf(part, sizeof part, " %s at %#lx (%d),", decoder_.mnemonic(form), at,
                        static_cast<int>(form.doubt));
          text += part;
        }
        if (form.length == 0) break;
        at += form.length;
      }
    }
    return text;
  }

  // The instruction in the assembly's terms.
  std::string at(std::uintptr_t pc) const {
    const std::uint32_t i = program_->instruction_at(pc - base_);
    char text[96];
    std::snprintf(text, sizeof text, "%#lx %s", pc - base_, i == kNone ? "?" : decoder_.mnemonic(program_->form(i)));
    return text;
  }
  // Must this access over the shadow as it is lead to a report?
  bool must_be_reported(const Access& access) const;

 private:
  static std::uintptr_t map(std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }

  // The instruction that stands at this place, in the module or as its moved copy behind its checks; 0 for none.
  std::uintptr_t original_of(std::uintptr_t pc) const {
    if (!area_->code.contains(AppAddr(pc))) return pc - base_ < program_->text_end() ? pc : 0;
    const auto places = area_->file.places();
    const std::size_t n = load::place_at(*area_, pc);
    if (n == places.count || places[n].code_offset != area_->code_offset(pc)) return 0;
    if (n + 1 < places.count && places[n + 1].text_offset == places[n].text_offset) return 0;
    return area_->text.begin.value + places[n].text_offset;
  }

  std::uint8_t* shadow_of_arena() const { return shadow::shadow_of(AppAddr(arena_)).ptr(); }

  std::uint64_t seed_;
  unsigned level_;
  GeneratedModule generated_;
  std::unique_ptr<Assembled> module_;
  void* handle_ = nullptr;
  std::uintptr_t base_ = 0;
  const load::Area* area_ = nullptr;
  std::uintptr_t arena_ = 0;
  std::uintptr_t stack_ = 0;
  std::vector<std::uint8_t> noise_;  // what the arena holds before each run
  Decoder decoder_;
  std::unique_ptr<ElfImage> image_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<Liveness> liveness_;
  RewrittenModule rewritten_;
  bool exact_ = false;
};

bool byte_is_bad(std::uintptr_t byte) {
  const std::uint8_t value = *shadow::shadow_of(AppAddr(byte)).ptr();
  return value >= 8 || (value != 0 && byte % 8 >= value);
}

// Accesses whose base is the stack or no register at all are never checked; those lie outside the arena.
bool World::must_be_reported(const Access& access) const {
  if (access.begin < arena_ || access.begin >= arena_ + kArenaBytes) return false;
  std::uintptr_t last_bad = 0;
  for (const auto& [address, bytes] : access.pieces) {
    for (std::uintptr_t byte = address; byte < address + bytes; ++byte) {
      if (byte_is_bad(byte)) last_bad = std::max(last_bad, byte);
    }
  }
  if (last_bad == 0) return false;
  if (!access.is_plain) return true;
  // Ruling 9.
  const std::size_t size = access.end - access.begin;
  if (!access.is_write && size >= 16 && (size & (size - 1)) == 0 && access.begin % size == 0) {
    for (std::uintptr_t byte = access.begin; byte < access.end; ++byte) {
      if (!byte_is_bad(byte)) return false;
    }
  }
  if (exact_) return true;
  // The fast path looks at as many granules as an aligned span has, from the span's last one down.
  for (const ModuleCheck& check : rewritten_.checks) {
    if (check.is_special != 0) continue;
    const std::span accesses = std::span(rewritten_.accesses).subspan(check.first_access, check.access_count);
    for (const ModuleAccess& a : accesses) {
      if (program_->text_begin() + a.text_offset != access.pc - base_ || a.size != size) continue;
      std::int32_t high = check.low;
      for (const ModuleAccess& other : accesses) high = std::max(high, other.displacement + other.size);
      const std::uintptr_t end = access.begin + static_cast<std::uintptr_t>(std::int64_t{high} - a.displacement);
      const unsigned granules = tested_granules(check.low, high, check.access_count);
      return last_bad / 8 + granules > (end - 1) / 8;
    }
  }
  return true;  // in no check of its own: another one covers it
}

bool overlap(std::uintptr_t a, std::size_t a_bytes, std::uintptr_t b, std::size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

std::string words(const World& world, std::uintptr_t pc, std::uintptr_t address, std::size_t size, bool is_write) {
  char text[200];
  std::snprintf(text, sizeof text, "%s: %s of %zu bytes at arena + %#lx", world.at(pc).c_str(),
                is_write ? "write" : "read", size, address - world.arena());
  return text;
}

// What was reported, against what the single steps saw.
//
// Code that cannot be reached through a patch runs unchecked in its place; `native` are the accesses made there.
std::string judge_reports(const World& world, const std::vector<Access>& accesses,
                          const std::vector<Access>& native) {
  std::string text;
  std::size_t lines = 0;
  const auto say = [&](const std::string& line) {
    if (++lines <= 5) text += line + "\n";
  };
  for (std::size_t n = 0; n < g_report_count; ++n) {
    const Report& report = g_reports[n];
    bool real = false;
    for (const Access& access : accesses) {
      real |= access.pc == report.pc && access.is_write == report.is_write &&
              access.holds(report.address, report.size) && access.touches(report.bad) && byte_is_bad(report.bad);
    }
    if (!real) say("reported, but not so: " + words(world, report.pc, report.address, report.size, report.is_write));
  }
  for (const Access& access : accesses) {
    if (!world.must_be_reported(access)) continue;
    bool found = false;
    for (std::size_t n = 0; n < g_report_count && !found; ++n) {
      const Report& report = g_reports[n];
      const bool same_bytes = overlap(report.address, report.size, access.begin, access.end - access.begin);
      // A comparison of strings is followed no further than to the first bad element of either side.
      found = report.pc == access.pc ? same_bytes || access.is_string : same_bytes && access.is_plain;
    }
    found |= std::ranges::any_of(native, [&](const Access& other) { return other.pc == access.pc; });
    if (!found)
      say("not reported: " + words(world, access.pc, access.begin, access.end - access.begin, access.is_write));
  }
  return text;
}

void differ(std::uint64_t seed, const RewriteOptions& options) {
  World world(seed);
  set_fault_hook(take_report);
  constexpr unsigned kStates = 2;
  std::map<std::string, std::vector<Outcome>> plain;
  std::map<std::string, std::vector<std::vector<Access>>> seen;
  for (const std::string& name : world.generated().roots) {
    for (unsigned s = 0; s < kStates; ++s) {
      plain[name].push_back(world.run(name, seed + s));
      Steps steps;
      world.run(name, seed + s, &steps);
      seen[name].push_back(steps.take());
    }
  }
  ASSERT_NO_FATAL_FAILURE(world.rewrite(options));
  std::size_t reports = 0;
  std::size_t made = 0;
  std::size_t made_in_place = 0;
  for (const std::string& name : world.generated().roots) {
    for (unsigned s = 0; s < kStates; ++s) {
      const std::string where = "seed " + std::to_string(seed) + ", function " + name + ": ";
      world.clean_shadow();
      std::string wrong = world.difference(plain[name][s], world.run(name, seed + s));
      if (!wrong.empty()) {
        Steps moved;
        moved.trace(true);
        world.run(name, seed + s, &moved);
        Steps steps;
        steps.trace(true);
        world.take_patches_back();
        world.run(name, seed + s, &steps);
        wrong += world.first_difference(steps.steps(), moved.steps());
      }
      ASSERT_TRUE(wrong.empty()) << where << "clean shadow\n" << wrong << world.keep();
      ASSERT_EQ(g_report_count, 0u) << where << "reports over a clean shadow: "
                                    << words(world, g_reports[0].pc, g_reports[0].address, g_reports[0].size, false)
                                    << "\n"
                                    << world.keep();
      world.soil_shadow(seed + s);
      wrong = world.difference(plain[name][s], world.run(name, seed + s));
      ASSERT_TRUE(wrong.empty()) << where << "soiled shadow\n" << wrong << world.keep();
      reports += g_report_count;
      wrong = judge_reports(world, seen[name][s], {});
      made += seen[name][s].size();
      if (wrong.empty()) continue;
      Steps steps;
      world.run(name, seed + s, &steps);
      const std::vector<Access> native = steps.take();
      made_in_place += native.size();
      wrong = judge_reports(world, seen[name][s], native);
    }
  }
  set_fault_hook(nullptr);
  EXPECT_LT(made_in_place * 10, made) << "nearly all accesses are made by moved code";
  EXPECT_GT(reports, world.generated().roots.size()) << "the soiled shadow is met";
}

TEST(Differential, RewrittenFunctionsDoWhatTheOriginalsDoAndReportWhatTheyTouch) {
  const bool full = std::getenv("PENUMBRA_FULL") != nullptr;
  for (std::uint64_t seed = 1; seed <= (full ? 60 : 3); ++seed) {
    differ(seed, {});
    if (HasFatalFailure()) return;
  }
}

TEST(Differential, ExactChecksMissNoByteOfAMisalignedAccess) {
  RewriteOptions options;
  options.exact = true;
  differ(101, options);
}

// What the paged map gets, here over the direct one: the routine asks whichever map there is.
TEST(Differential, ChecksThatCallOutMissNoByteAndChangeNothing) {
  RewriteOptions options;
  options.calls_out = true;
  differ(102, options);
}

}  // namespace
}  // namespace penumbra::rewrite
