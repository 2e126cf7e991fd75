// The report's text, whole and line by line, from invented facts: each message is pinned once.
#include "runtime/report/compose.h"

#include <gtest/gtest.h>

#include <signal.h>

#include <algorithm>
#include <memory>
#include <regex>
#include <string>

#include "runtime/report/snapshot.h"
#include "runtime/stacks/stacks.h"

namespace penumbra::report {
namespace {

constexpr AppAddr kHeap{0x7f0000001000};
constexpr std::uintptr_t kCaller = 0x1000;  // nothing is mapped at these, so only the test names them
constexpr std::uintptr_t kMaker = 0x2000;
constexpr std::uintptr_t kDropper = 0x3000;

class ComposeTest : public testing::Test {
 protected:
  ComposeTest() {
    input_.snapshot = &s_;
    input_.names = names_.get();
    s_.fault.kind = FaultKind::kBadAccess;
    s_.task = s_.process = 4711;
    s_.cpu = 1;
    s_.uid = 1000;
    set_text(s_.task_name, "prog");
    add_frame(input_.access, kCaller, "main", 0x1b, 0x80);
  }

  template <std::size_t N>
  static void set_text(char (&into)[N], const std::string& text) {
    std::copy(text.c_str(), text.c_str() + text.size() + 1, into);
  }

  void add_frame(Stack& stack, std::uintptr_t pc, const char* function, std::uintptr_t offset, std::size_t bytes) {
    stack.frames[stack.count++] = pc;
    CodeName* const name = names_->add(pc, true);
    name->function = function;
    name->offset = offset;
    name->bytes = bytes;
    name->module = "prog";
    name->module_path = "/usr/bin/prog";
    name->module_offset = pc;
    name->build_id = "0123abcd";
    name->module_is_loaded = true;
  }

  void shadow_around(AppAddr bad, std::uint8_t fill) {
    s_.fault.addr = s_.fault.bad = bad;
    s_.rows.begin = AppAddr(round_down(bad.value, kBytesPerRow) - 2 * kBytesPerRow);
    s_.rows.known.fill(true);
    for (auto& row : s_.rows.bytes) row.fill(fill);
  }

  void overflow_of_forty_bytes() {
    shadow_around(kHeap + 40, 0xfc);
    for (int i = 0; i < 5; ++i) s_.rows.bytes[2][i] = 0;
    s_.fault.is_write = true;
    s_.fault.addr = kHeap;
    s_.fault.size = 44;
    s_.has_block = true;
    s_.block.state = heap::BlockState::kLive;
    s_.block.begin = kHeap;
    s_.block.bytes = 40;
    s_.block.block_bytes = 80;
    s_.block.by = AllocatorName::kMalloc;
    s_.block.allocated_by = 4711;
    add_frame(input_.allocated, kMaker, "make", 0x10, 0x30);
  }

  std::string text() {
    input_.diagnosis = diagnose(s_);
    auto out = std::make_unique<FixedTextBuffer<65536>>();
    compose_report(*out, input_);
    return out->c_str();
  }

  bool has(const std::string& piece) {
    const bool found = text().find(piece) != std::string::npos;
    if (!found) std::fputs(text().c_str(), stderr);
    return found;
  }

  std::unique_ptr<NameTable> names_ = std::make_unique<NameTable>();
  Snapshot s_;
  ReportInput input_;
};

TEST_F(ComposeTest, HeapOverflowReadsLikeKasanLineByLine) {
  overflow_of_forty_bytes();
  const std::string rule(66, '=');
  EXPECT_EQ(text(), rule +
                        "\n"
                        "BUG: KASAN: slab-out-of-bounds in main+0x1b/0x80 [prog]\n"
                        "Write of size 44 at addr 00007f0000001000 by task prog/4711\n"
                        "\n"
                        "CPU: 1 UID: 1000 PID: 4711 Comm: prog Penumbra " PENUMBRA_VERSION
                        "\n"
                        "Call Trace:\n"
                        " [<0000000000001000>] main+0x1b/0x80 [prog] (/usr/bin/prog+0x1000, build-id 0123abcd)\n"
                        "\n"
                        "Allocated by task 4711:\n"
                        " [<0000000000002000>] make+0x10/0x30 [prog] (/usr/bin/prog+0x2000, build-id 0123abcd)\n"
                        "\n"
                        "The buggy address belongs to the object at 00007f0000001000\n"
                        " which belongs to the cache malloc-80 of size 80\n"
                        "The buggy address is located 0 bytes to the right of\n"
                        " allocated 40-byte region [00007f0000001000, 00007f0000001028)\n"
                        "\n"
                        "Memory state around the buggy address:\n"
                        " 00007f0000000f00: fc fc fc fc fc fc fc fc fc fc fc fc fc fc fc fc\n"
                        " 00007f0000000f80: fc fc fc fc fc fc fc fc fc fc fc fc fc fc fc fc\n"
                        ">00007f0000001000: 00 00 00 00 00 fc fc fc fc fc fc fc fc fc fc fc\n"
                        "                                  ^\n"
                        " 00007f0000001080: fc fc fc fc fc fc fc fc fc fc fc fc fc fc fc fc\n"
                        " 00007f0000001100: fc fc fc fc fc fc fc fc fc fc fc fc fc fc fc fc\n" +
                        rule + "\n");
}

TEST_F(ComposeTest, TheCaretStandsInTheColumnOfTheKernel) {
  overflow_of_forty_bytes();
  const std::string report = text();
  const std::size_t caret = report.find("^\n");
  const std::size_t column = caret - report.rfind('\n', caret);  // 1-based
  // printf("%*c", 3 + 16 + ((addr - row) / 8) * 3 + 1, '^')
  EXPECT_EQ(column, 3u + 16 + 40 / 8 * 3 + 1);
}

TEST_F(ComposeTest, AFreedObjectShowsBothStacks) {
  overflow_of_forty_bytes();
  shadow_around(kHeap + 8, 0xfb);
  s_.block.state = heap::BlockState::kQuarantined;
  s_.block.freed_by = 4712;
  s_.fault.is_write = false;
  s_.fault.size = 1;
  add_frame(input_.freed, kDropper, "drop", 0x5, 0x30);
  const std::string report = text();
  EXPECT_TRUE(std::regex_search(report, std::regex("BUG: KASAN: slab-use-after-free in main\\+")));
  EXPECT_TRUE(std::regex_search(report, std::regex("\nRead of size 1 at addr 00007f0000001008 by task prog/4711\n")));
  EXPECT_TRUE(std::regex_search(report, std::regex("\nAllocated by task 4711:\n.*make\\+0x10/0x30.*\n\n"
                                                   "Freed by task 4712:\n.*drop\\+0x5/0x30.*\n\n"
                                                   "The buggy address belongs to the object")));
  EXPECT_TRUE(std::regex_search(report, std::regex("located 8 bytes inside of\n freed 40-byte region \\[")));
}

TEST_F(ComposeTest, AnObjectWithoutAStackSaysSo) {
  overflow_of_forty_bytes();
  input_.allocated.count = 0;
  EXPECT_TRUE(has("Allocated by task 4711:\n(stack is not available)\n"));
}

TEST_F(ComposeTest, FreesHaveNoSize) {
  overflow_of_forty_bytes();
  s_.fault.kind = FaultKind::kInvalidFree;
  s_.fault.addr = kHeap + 8;
  s_.fault.size = 0;
  s_.fault.function = "free";
  EXPECT_TRUE(
      has("BUG: KASAN: invalid-free in main+0x1b/0x80 [prog]\n"
          "Free of addr 00007f0000001008 by task prog/4711\n"
          "Checked call: free()\n\n"));
  EXPECT_TRUE(has("located 8 bytes inside of\n allocated 40-byte region"));
}

TEST_F(ComposeTest, AMismatchNamesBothSides) {
  overflow_of_forty_bytes();
  s_.fault.kind = FaultKind::kMismatchedFree;
  s_.fault.allocated_by = AllocatorName::kNewArray;
  s_.fault.freed_by = AllocatorName::kMalloc;
  EXPECT_TRUE(has("BUG: KASAN: alloc-dealloc-mismatch in"));
  EXPECT_TRUE(has("Allocated with operator new[], freed with free\n"));
}

TEST_F(ComposeTest, ASizeMismatchSaysWhatWasGiven) {
  overflow_of_forty_bytes();
  s_.fault.kind = FaultKind::kSizeMismatch;
  s_.fault.freed_by = AllocatorName::kNew;
  s_.fault.size = 8;
  EXPECT_TRUE(has("BUG: KASAN: new-delete-type-mismatch in"));
  EXPECT_TRUE(has("The size or alignment given to operator delete is not that of the object: 8 bytes were given\n"));
}

TEST_F(ComposeTest, AnOverwrittenHeaderIsSaid) {
  overflow_of_forty_bytes();
  s_.fault.kind = FaultKind::kCorruptHeader;
  EXPECT_TRUE(has("BUG: KASAN: slab-corruption in"));
  EXPECT_TRUE(has("The header before the object was overwritten\n"));
}

TEST_F(ComposeTest, AnOverlapIsNamedAfterTheFunctionAndShowsBothRanges) {
  s_.fault.kind = FaultKind::kOverlap;
  s_.fault.function = "__memcpy_chk";
  s_.fault.addr = kHeap;
  s_.fault.other_addr = kHeap + 8;
  s_.fault.size = 16;
  EXPECT_TRUE(has("BUG: KASAN: memcpy-param-overlap in main"));
  EXPECT_TRUE(
      has("Memory ranges overlap: [00007f0000001000, 00007f0000001010) and "
          "[00007f0000001008, 00007f0000001018)\n"));
}

TEST_F(ComposeTest, AWrappedSizeIsShownSigned) {
  s_.fault.kind = FaultKind::kWrappedAccess;
  s_.fault.addr = kHeap;
  s_.fault.size = static_cast<std::size_t>(-2);
  EXPECT_TRUE(has("BUG: KASAN: out-of-bounds in"));
  EXPECT_TRUE(has("as a signed number it is -2\n"));
}

TEST_F(ComposeTest, ARegionHasPagesStacksAndADistance) {
  shadow_around(AppAddr(std::uintptr_t{0x500000001400}), 0xe1);
  s_.fault.size = 1;
  s_.in_span = s_.has_area = true;
  s_.area.state = region::AreaState::kLive;
  s_.area.begin = AppAddr(std::uintptr_t{0x500000000000});
  s_.area.requested = 5000;
  s_.area.area_bytes = 8192;
  s_.area.allocated_by = 4711;
  add_frame(input_.allocated, kMaker, "make", 0x10, 0x30);
  EXPECT_TRUE(has("BUG: KASAN: vmalloc-out-of-bounds in"));
  EXPECT_TRUE(
      has("The buggy address belongs to a 2-page vmalloc region starting at 0x500000000000 allocated at "
          "make+0x10/0x30 [prog]\n"
          "The buggy address is located 120 bytes to the right of\n"
          " allocated 5000-byte region [0000500000000000, 0000500000001388)\n"));
  s_.area.state = region::AreaState::kPurged;
  add_frame(input_.freed, kDropper, "drop", 0x5, 0x30);
  EXPECT_TRUE(has("\nFreed by task 0:\n [<0000000000003000>] drop+0x5/0x30"));
  EXPECT_TRUE(has("belongs to a freed 2-page vmalloc region"));
}

TEST_F(ComposeTest, AGlobalHasItsNameAndFile) {
  shadow_around(kHeap + 12, 0xf9);
  s_.fault.size = 4;
  s_.has_global = true;
  s_.global.begin = kHeap;
  s_.global.bytes = 10;
  set_text(s_.global.name, "table");
  set_text(s_.global.file, "src/t.c");
  EXPECT_TRUE(has("BUG: KASAN: global-out-of-bounds in"));
  EXPECT_TRUE(
      has("The buggy address belongs to the variable:\n table+0xc/0xa defined in src/t.c\n"
          "The buggy address is located 2 bytes to the right of\n"
          " 10-byte variable [00007f0000001000, 00007f000000100a)\n"));
}

TEST_F(ComposeTest, AStackFrameListsItsObjects) {
  shadow_around(kHeap + 42, 0xf2);
  s_.fault.size = 1;
  s_.has_frame = true;
  s_.frame.begin = kHeap;
  s_.frame.function = kCaller;
  parse_frame_description("2 32 10 5 buf:7 64 4 1 n", s_.frame);
  EXPECT_TRUE(has("BUG: KASAN: stack-out-of-bounds in"));
  EXPECT_TRUE(
      has("The buggy address belongs to stack of task prog/4711\n"
          " and is located at offset 42 in frame:\n"
          " main+0x1b/0x80 [prog]\n"
          "\n"
          "This frame has 2 objects:\n"
          " [32, 42) 'buf' (line 7)\n"
          " [64, 68) 'n'\n"));
}

TEST_F(ComposeTest, AWildAccessShowsNoMemoryState) {
  shadow_around(AppAddr(std::uintptr_t{0x410}), 0);
  s_.fault.kind = FaultKind::kWildAccess;
  s_.fault.signal = SIGSEGV;
  EXPECT_TRUE(has("BUG: KASAN: null-ptr-deref in"));
  EXPECT_TRUE(has("Read at addr 0000000000000410 by task"));
  EXPECT_EQ(text().find("Memory state"), std::string::npos);
}

TEST_F(ComposeTest, AFaultInTheShadowNamesTheAddressThatWasMeant) {
  s_.fault.kind = FaultKind::kWildAccess;
  s_.fault.signal = SIGSEGV;
  s_.fault.addr = AppAddr(shadow::shadow_of(AppAddr(std::uintptr_t{0x10000000000})).value);
  EXPECT_TRUE(has("KASAN: maybe wild-memory-access in range [0x0000010000000000-0x0000010000000007]\n"));
}

TEST_F(ComposeTest, AnUnknownOperandIsSaid) {
  s_.fault.kind = FaultKind::kWildAccess;
  s_.fault.signal = SIGSEGV;
  s_.fault.address_known = false;
  EXPECT_TRUE(has("BUG: KASAN: wild-memory-access in"));
  EXPECT_TRUE(has("Access at addr unknown by task"));
}

TEST_F(ComposeTest, ABrokenStackEndsWithAMark) {
  input_.access.frames[input_.access.count++] = stacks::kBrokenStack;
  EXPECT_TRUE(has("\n ? (the stack cannot be followed any further)\n"));
}

TEST_F(ComposeTest, SourceLinesStandBehindTheFrameAndInlinedCallersBelow) {
  CodeName* const name = names_->add(kCaller, true);
  name->source_count = 2;
  name->source[0] = {"copy(char*)", "src/copy.h", 12};
  name->source[1] = {"main", "src/prog.c", 30};
  EXPECT_TRUE(
      has(" [<0000000000001000>] main+0x1b/0x80 [prog] copy(char*) src/copy.h:12\n"
          "  inlined into main src/prog.c:30\n"));
}

TEST_F(ComposeTest, AFunctionWithoutASymbolSaysWhatIsNear) {
  CodeName* const name = names_->add(kCaller, true);
  name->function = "sub_00000fe5";
  name->near = "start";
  name->near_offset = 0x200;
  name->module_is_loaded = false;
  EXPECT_TRUE(
      has("] sub_00000fe5+0x1b/0x80 [prog] (/usr/bin/prog+0x1000, build-id 0123abcd, 0x200 after start, "
          "unloaded since)\n"));
}

TEST_F(ComposeTest, RowsWithoutShadowAreDashes) {
  overflow_of_forty_bytes();
  s_.rows.known[0] = false;
  EXPECT_TRUE(has(" 00007f0000000f00: -- -- --"));
}

}  // namespace
}  // namespace penumbra::report
