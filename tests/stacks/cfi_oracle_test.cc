// Our call frame information against two others: what libunwind's step and libdw's rules give for the code of libc,
// libstdc++, python3 and perl.
//
// libunwind gets a made-up machine: registers that point into a made-up stack whose every word points into that stack
// again, so that any rule, expressions included, can be followed and different rules give different answers. Both
// unwinders step from the same state; the CFA, the return address and all callee-saved registers must agree. libdw
// states rules without executing them; those that are no expressions are compared as they stand.
//
// Quick: the first and the last pc of each row of every FDE. With PENUMBRA_FULL=1: every pc of every FDE.
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <libunwind-x86_64.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "elf_image.h"
#include "runtime/stacks/byte_cursor.h"
#include "runtime/stacks/frame_step.h"

#include <gtest/gtest.h>

// Exported by libunwind for unwinders of other processes (perf uses it), but in none of its headers.
extern "C" int UNW_OBJ(dwarf_search_unwind_table)(unw_addr_space_t space, unw_word_t ip, unw_dyn_info_t* table,
                                                  unw_proc_info_t* info, int need_unwind_info, void* cookie);

namespace {

using namespace penumbra::stacks;
using penumbra::testing::ElfImage;

bool is_full() {
  const char* full = std::getenv("PENUMBRA_FULL");
  return full != nullptr && std::strcmp(full, "1") == 0;
}

// A stack in which every word is the address of another, pseudo-random place of it.
class MadeUpStack {
 public:
  static constexpr std::size_t kBytes = std::size_t{32} << 20;

  MadeUpStack() {
    words_ = static_cast<std::uint64_t*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (std::size_t i = 0; i < kBytes / 8; ++i) words_[i] = place(i);
  }
  ~MadeUpStack() { munmap(words_, kBytes); }

  bool holds(std::uint64_t address) const {
    return address >= reinterpret_cast<std::uint64_t>(words_) &&
           address - reinterpret_cast<std::uint64_t>(words_) <= kBytes - 8;
  }

  std::uint64_t place(std::uint64_t n) const {
    const std::uint64_t mixed = (n + 1) * 0x9e3779b97f4a7c15u;
    return reinterpret_cast<std::uint64_t>(words_) + kBytes / 4 + (mixed >> 20) % (kBytes / 2) / 8 * 8;
  }

 private:
  std::uint64_t* words_;
};

struct Machine {
  const ElfImage* image = nullptr;
  const MadeUpStack* stack = nullptr;
  Registers registers;
};

int find_proc_info(unw_addr_space_t space, unw_word_t ip, unw_proc_info_t* info, int need_unwind_info, void* cookie) {
  const ElfImage& image = *static_cast<Machine*>(cookie)->image;
  unw_dyn_info_t table = {};
  table.start_ip = 0;
  table.end_ip = ~unw_word_t{0};
  table.format = UNW_INFO_FORMAT_REMOTE_TABLE;
  ByteCursor header(image.header().begin, image.header().end);
  header.skip(1);
  const std::uint8_t frame_encoding = header.u8();
  const std::uint8_t count_encoding = header.u8();
  header.skip(1);
  header.pointer(frame_encoding, 0);
  const std::uint64_t count = header.plain(count_encoding);
  table.u.rti.segbase = reinterpret_cast<unw_word_t>(image.header().begin);
  table.u.rti.table_data = reinterpret_cast<unw_word_t>(header.at());
  table.u.rti.table_len = count * 8 / sizeof(unw_word_t);
  return UNW_OBJ(dwarf_search_unwind_table)(space, ip, &table, info, need_unwind_info, cookie);
}

void put_unwind_info(unw_addr_space_t, unw_proc_info_t*, void*) {}

int no_list(unw_addr_space_t, unw_word_t*, void*) {
  return -UNW_ENOINFO;
}

int access_mem(unw_addr_space_t, unw_word_t address, unw_word_t* value, int write, void* cookie) {
  if (write != 0) return -UNW_EINVAL;
  const Machine& machine = *static_cast<Machine*>(cookie);
  const auto* byte = reinterpret_cast<const std::uint8_t*>(address);
  const ByteRange header = machine.image->header();
  const ByteRange frame = machine.image->frame();
  if (machine.stack->holds(address) || (byte >= header.begin && byte + 8 <= header.end) ||
      (byte >= frame.begin && byte + 8 <= frame.end)) {
    std::memcpy(value, byte, sizeof *value);
    return 0;
  }
  StackMemory memory;
  return memory.read(address, *value) ? 0 : -UNW_EINVAL;
}

int access_reg(unw_addr_space_t, unw_regnum_t r, unw_word_t* value, int write, void* cookie) {
  const Machine& machine = *static_cast<Machine*>(cookie);
  if (write != 0 || r < 0 || r >= static_cast<int>(kRegisters)) return -UNW_EBADREG;
  *value = machine.registers.value[r];
  return 0;
}

int access_fpreg(unw_addr_space_t, unw_regnum_t, unw_fpreg_t*, int, void*) {
  return -UNW_EBADREG;
}

int resume(unw_addr_space_t, unw_cursor_t*, void*) {
  return -UNW_EINVAL;
}

int get_proc_name(unw_addr_space_t, unw_word_t, char*, size_t, unw_word_t*, void*) {
  return -UNW_ENOINFO;
}

std::string row_text(const CfiRow& row) {
  std::string text = row.cfa_is_expression
                         ? "CFA=expression"
                         : "CFA=r" + std::to_string(row.cfa_register) + "+" + std::to_string(row.cfa_value);
  for (unsigned r = 0; r < kRegisters; ++r) {
    if (row.rules[r].kind == RuleKind::kUnspecified) continue;
    text += " r" + std::to_string(r) + ":" + std::to_string(static_cast<int>(row.rules[r].kind)) + "," +
            std::to_string(row.rules[r].value);
  }
  return text;
}

class Oracle {
 public:
  explicit Oracle(const std::string& path) : image_(path) {
    static unw_accessors_t accessors = {find_proc_info, put_unwind_info, no_list, access_mem,
                                        access_reg,     access_fpreg,    resume,  get_proc_name};
    space_ = unw_create_addr_space(&accessors, 0);
    unw_set_caching_policy(space_, UNW_CACHE_NONE);
    machine_.image = &image_;
    machine_.stack = &stack_;
    fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    elf_version(EV_CURRENT);
    elf_ = elf_begin(fd_, ELF_C_READ_MMAP, nullptr);
    cfi_ = dwarf_getcfi_elf(elf_);
  }
  ~Oracle() {
    unw_destroy_addr_space(space_);
    dwarf_cfi_end(cfi_);
    elf_end(elf_);
    close(fd_);
  }

  const ElfImage& image() const { return image_; }
  std::size_t mismatches() const { return mismatches_; }
  std::size_t steps_compared() const { return steps_compared_; }
  std::size_t rules_compared() const { return rules_compared_; }
  std::size_t outermost() const { return outermost_; }
  std::size_t expressions() const { return expressions_; }

  void check(const CfiEntry& entry, std::uintptr_t pc, bool is_new_row) {
    CfiEntry found;
    if (!find_entry(image_.header(), image_.frame(), pc, found) || found.pc_begin != entry.pc_begin) {
      return mismatch(pc, "our table search finds another entry");
    }
    CfiRow row;
    if (!row_at(entry, pc, row)) return mismatch(pc, "we have no row");
    if (is_new_row) check_rules(pc, row);
    check_step(entry, pc, row);
  }

 private:
  void mismatch(std::uintptr_t pc, const std::string& what) {
    ++mismatches_;
    if (mismatches_ <= 20) ADD_FAILURE() << std::hex << "pc 0x" << pc - image_.bias() << ": " << what;
  }

  void check_step(const CfiEntry& entry, std::uintptr_t pc, const CfiRow& row) {
    Registers registers;
    for (unsigned r = 0; r < kRegisters; ++r) registers.set(r, stack_.place(1000003 + r * 7919));
    registers.set(kRip, pc);
    machine_.registers = registers;
    unw_cursor_t cursor;
    if (unw_init_remote(&cursor, space_, &machine_) != 0) return mismatch(pc, "libunwind cannot start");
    const int their_status = unw_step(&cursor);
    StackMemory memory;
    const StepStatus status = step(entry, row, registers, memory);
    ++steps_compared_;
    if (row.cfa_is_expression) ++expressions_;
    if (status == StepStatus::kEnd) {
      ++outermost_;
      if (their_status > 0) mismatch(pc, "libunwind goes on where we end");
      return;
    }
    // libunwind answers 0 too when it has stepped to a frame whose own return address it cannot tell; the made-up
    // return address makes that impossible here.
    if (status != StepStatus::kOk || their_status <= 0) {
      return mismatch(pc, "our step " + std::to_string(static_cast<int>(status)) + ", theirs " +
                              std::to_string(their_status) + " with " + row_text(row));
    }
    static constexpr unsigned kCompared[] = {kRbx, kRbp, kRsp, 12, 13, 14, 15, kRip};
    for (const unsigned r : kCompared) {
      unw_word_t theirs = 0;
      if (unw_get_reg(&cursor, static_cast<int>(r), &theirs) != 0) theirs = 0;
      if (!registers.has(r)) continue;
      // libunwind takes the CFA for the caller's rsp whatever the rules say; longjmp's tail, where the target's rsp
      // is in r8, is the one place that says otherwise. libdw is asked there.
      if (r == kRsp && row.rules[kRsp].kind != RuleKind::kUnspecified) continue;
      if (registers.value[r] != theirs) {
        mismatch(pc, "register " + std::to_string(r) + " differs from libunwind's, " + row_text(row));
      }
    }
  }

  void check_rules(std::uintptr_t pc, const CfiRow& row) {
    Dwarf_Frame* frame = nullptr;
    if (dwarf_cfi_addrframe(cfi_, pc - image_.bias(), &frame) != 0) return mismatch(pc, "libdw has no row");
    ++rules_compared_;
    Dwarf_Op* operations = nullptr;
    std::size_t count = 0;
    if (dwarf_frame_cfa(frame, &operations, &count) == 0 && !row.cfa_is_expression) {
      const bool same =
          count == 1 && ((operations[0].atom == DW_OP_bregx && operations[0].number == row.cfa_register &&
                          static_cast<std::int64_t>(operations[0].number2) == row.cfa_value) ||
                         (operations[0].atom == DW_OP_breg0 + row.cfa_register &&
                          static_cast<std::int64_t>(operations[0].number) == row.cfa_value));
      if (!same) mismatch(pc, "CFA differs from libdw's, " + row_text(row));
    }
    static constexpr unsigned kCompared[] = {kRbx, kRbp, 12, 13, 14, 15, kRip};
    for (const unsigned r : kCompared) check_rule(pc, r, row, frame);
    if (row.rules[kRsp].kind != RuleKind::kUnspecified) check_rule(pc, kRsp, row, frame);
    std::free(frame);
  }

  void check_rule(std::uintptr_t pc, unsigned r, const CfiRow& row, Dwarf_Frame* frame) {
    Dwarf_Op memory[3];
    Dwarf_Op* operations = nullptr;
    std::size_t count = 0;
    if (dwarf_frame_register(frame, static_cast<int>(r), memory, &operations, &count) != 0) {
      return mismatch(pc, "libdw has no rule for register " + std::to_string(r));
    }
    const RegisterRule ours = row.rules[r];
    bool same = true;
    switch (ours.kind) {
      case RuleKind::kUnspecified: same = count == 0; break;  // libdw adds defaults of its own
      case RuleKind::kSame: same = count == 0 && operations == nullptr; break;
      case RuleKind::kUndefined: same = count == 0 && operations == memory; break;
      case RuleKind::kOffset:
        same = (count == 1 && ours.value == 0) ||
               (count == 2 && operations[0].atom == DW_OP_call_frame_cfa && operations[1].atom == DW_OP_plus_uconst &&
                static_cast<std::int64_t>(operations[1].number) == ours.value);
        break;
      case RuleKind::kRegister:
        same = count == 1 && operations[0].atom == DW_OP_regx &&
               static_cast<std::int64_t>(operations[0].number) == ours.value;
        break;
      default: break;  // expressions: executed in check_step
    }
    if (!same) mismatch(pc, "rule of register " + std::to_string(r) + " differs from libdw's, " + row_text(row));
  }

  ElfImage image_;
  MadeUpStack stack_;
  Machine machine_;
  unw_addr_space_t space_;
  int fd_;
  Elf* elf_;
  Dwarf_CFI* cfi_;
  std::size_t mismatches_ = 0;
  std::size_t steps_compared_ = 0;
  std::size_t rules_compared_ = 0;
  std::size_t outermost_ = 0;
  std::size_t expressions_ = 0;
};

void check_file(const std::string& path) {
  Oracle oracle(path);
  const auto& entries = oracle.image().entries();
  ASSERT_GT(entries.size(), 100u);
  for (const CfiEntry& entry : entries) {
    std::uintptr_t pc = entry.pc_begin;
    while (pc < entry.pc_end) {
      CfiRow row;
      RowRange range;
      ASSERT_TRUE(row_at(entry, pc, row, &range)) << path << std::hex << " 0x" << pc - oracle.image().bias();
      ASSERT_LE(range.begin, pc);
      ASSERT_LT(pc, range.end);
      oracle.check(entry, pc, true);
      // Expressions may look at the pc (PLT entries do), so every pc of their rows counts.
      const bool every_pc = is_full() || row.cfa_is_expression;
      for (std::uintptr_t next = every_pc ? pc + 1 : range.end - 1; next < range.end; ++next) {
        if (next != pc) oracle.check(entry, next, false);
      }
      pc = range.end;
    }
  }
  EXPECT_EQ(oracle.mismatches(), 0u) << path;
  std::printf(
      "%s: %zu entries, %zu steps as libunwind's (%zu with a CFA expression, %zu outermost), %zu rows as libdw's\n",
      path.c_str(), entries.size(), oracle.steps_compared(), oracle.expressions(), oracle.outermost(),
      oracle.rules_compared());
}

// The file that this process has loaded under a name that begins so.
std::string loaded_file(const char* name) {
  struct Search {
    std::string name;
    std::string path;
  } search{name, ""};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* cookie) {
        auto* wanted = static_cast<Search*>(cookie);
        const std::string path = info->dlpi_name;
        if (path.find("/" + wanted->name) != std::string::npos) wanted->path = path;
        return 0;
      },
      &search);
  return search.path;
}

TEST(CfiOracle, AgreesOnLibc) {
  check_file(loaded_file("libc.so."));
}

TEST(CfiOracle, AgreesOnTheLoader) {
  check_file(loaded_file("ld-linux-x86-64.so."));
}

TEST(CfiOracle, AgreesOnLibstdcxx) {
  check_file(loaded_file("libstdc++.so."));
}

TEST(CfiOracle, AgreesOnPython) {
  if (access("/usr/bin/python3", R_OK) != 0) GTEST_SKIP() << "python3 is not installed";
  check_file("/usr/bin/python3");
}

TEST(CfiOracle, AgreesOnPerl) {
  if (access("/usr/bin/perl", R_OK) != 0) GTEST_SKIP() << "perl is not installed";
  check_file("/usr/bin/perl");
}

}  // namespace
