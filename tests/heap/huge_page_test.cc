// Where huge pages are asked for, as the kernel's list of mappings tells it (`hg` in VmFlags). Each test runs in a
// process of its own, whose heap nobody has used before.
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "allocator/heap/arenas.h"
#include "allocator/heap/quarantine.h"
#include "runtime/base/config.h"
#include "tests/heap/heap_fixture.h"

namespace penumbra::heap {
namespace {

bool has_huge_pages(AppAddr at) {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool is_here = false;
  while (std::getline(smaps, line)) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) is_here = begin <= at.value && at.value < end;
    if (is_here && line.starts_with("VmFlags:")) return line.find(" hg") != std::string::npos;
  }
  return false;
}

class HugePageDeathTest : public HeapTest {
 protected:
  void SetUp() override {
    if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) GTEST_SKIP() << "no huge pages in this kernel";
    if (!shadow::is_direct()) GTEST_SKIP() << "the paged map has no huge pages";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }

  // Blocks until so many units are taken; the arena's begin.
  static AppAddr use_units(std::size_t units) {
    AppAddr last;
    while (stats().taken_units < units) last = AppAddr(allocate(1000));
    return AppAddr(round_down(last.value, kArenaAlignment));
  }
};

// What says no ends the child with its line number as status.
#define EXIT_UNLESS(condition) \
  if (!(condition)) std::_Exit(1 + __LINE__ % 250)

TEST_F(HugePageDeathTest, AreAskedForOnceAProgramUsesMuchAndForItsShadowToo) {
  EXPECT_EXIT(
      {
        const AppAddr arena = use_units(kUnitsBeforeHuge - 1);
        const AppAddr late = arena + (kFirstArena - 1);
        EXIT_UNLESS(!has_huge_pages(late));
        EXIT_UNLESS(!has_huge_pages(AppAddr(shadow::shadow_of(arena + (24u << 20)).value)));
        use_units(kUnitsBeforeHuge);
        EXIT_UNLESS(has_huge_pages(late));
        EXIT_UNLESS(has_huge_pages(AppAddr(shadow::shadow_of(arena + (24u << 20)).value)));
        EXIT_UNLESS(!has_huge_pages(arena));  // used in small pages already
        // The shadow of the last 16 MiB shares a huge page with that of a stranger, who gives his back by the page.
        EXIT_UNLESS(!has_huge_pages(AppAddr(shadow::shadow_of(late).value)));
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(HugePageDeathTest, SayTheSameOfEveryByteAsSmallOnes) {
  EXPECT_EXIT(
      {
        char* const early = allocate(1000);
        use_units(kUnitsBeforeHuge + 64);
        EXIT_UNLESS(accessible(early, 1000) && !accessible(early - 1, 1) && !accessible(early + 1000, 1));
        char* const late = allocate(1000);
        EXIT_UNLESS(accessible(late, 1000) && !accessible(late - 1, 1) && !accessible(late + 1000, 1));
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(HugePageDeathTest, AreWhatALaterArenaBeginsWith) {
  EXPECT_EXIT(
      {
        use_units(kUnitsBeforeHuge);
        const std::uint64_t before = stats().arenas;
        AppAddr last;
        while (stats().arenas == before) last = AppAddr(allocate(200000));
        EXIT_UNLESS(has_huge_pages(AppAddr(round_down(last.value, kArenaAlignment))));
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace penumbra::heap
