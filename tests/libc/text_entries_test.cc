// Every mem*, str*, wcs* entry point against its definition of what it touches: exact ends at every alignment, one
// character too many, missing terminators, and what must not be reported.
#include <dlfcn.h>
#include <string.h>
#include <wchar.h>

#include <random>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "instrument/libc/entry.h"
#include "tests/libc/poisoned_block.h"
#include "tests/libc/text_calls.h"

extern "C" {
void* __memcpy_chk(void*, const void*, size_t, size_t);
char* __strcpy_chk(char*, const char*, size_t);
}

// The linker's bounds of the section that every entry point has a slot in.
extern "C" penumbra::libc::RealSlot __start_penumbra_real[] __attribute__((visibility("hidden")));
extern "C" penumbra::libc::RealSlot __stop_penumbra_real[] __attribute__((visibility("hidden")));

namespace penumbra::libc::testing {
namespace {

class TextEntries : public LibcTest {};

// Around granules (8), the inline limit (57), a block (64), the first search window (256) and a page.
constexpr std::size_t kCounts[] = {1,  2,  3,  4,  7,  8,  9,   16,  31,  32,  33,  55,
                                   56, 57, 58, 63, 64, 65, 100, 255, 256, 257, 700, 1024};

std::string at(std::size_t offset, std::size_t count) {
  return "offset " + std::to_string(offset) + ", " + std::to_string(count) + " characters";
}

TEST_F(TextEntries, ACallThatEndsExactlyAtTheEndOfItsBlockIsNotReported) {
  for (const TextCall& call : text_calls()) {
    for (std::size_t offset = 0; offset < 8; offset += call.char_bytes) {
      for (const std::size_t count : kCounts) {
        const PoisonedBlock block(count * call.char_bytes, offset);
        call.call(block.begin(), count);
        expect_no_fault(call.function, at(offset, count));
      }
    }
  }
}

TEST_F(TextEntries, ACallThatTouchesOneCharacterMoreIsReportedAtTheEndOfItsBlock) {
  for (const TextCall& call : text_calls()) {
    for (std::size_t offset = 0; offset < 8; offset += call.char_bytes) {
      for (const std::size_t count : kCounts) {
        const PoisonedBlock block(count * call.char_bytes, offset);
        call.call(block.begin(), count + 1);
        expect_bad_access(call.function, call.is_write, block.end(), at(offset, count));
      }
    }
  }
}

TEST_F(TextEntries, ACallThatBeginsInTheLeftRedzoneIsReportedAtItsFirstByte) {
  for (const TextCall& call : text_calls()) {
    const PoisonedBlock block(64, 0);
    call.call(block.begin() - 8, 64 / call.char_bytes);
    expect_bad_access(call.function, !call.reads_first(), block.begin() - 8, "8 bytes before the block");
  }
}

TEST_F(TextEntries, FreedMemoryIsReportedAtItsFirstByte) {
  for (const TextCall& call : text_calls()) {
    const PoisonedBlock block(256, 0);
    shadow::poison(AppAddr(block.begin()), 256, shadow::ShadowTag::kHeapFreed);
    call.call(block.begin(), 16);
    expect_bad_access(call.function, !call.reads_first(), block.begin(), "freed");
  }
}

// Two units in the span, of which the second is not there as far as the unit map knows. Its shadow reads 0, and its
// memory is mapped all the same, so that a call that misses it goes on unnoticed.
class TextEntriesInSpan : public TextEntries {
 protected:
  static constexpr std::size_t kUnit = shadow::kUnitSize;

  void SetUp() override {
    TextEntries::SetUp();
    mapped_ =
        static_cast<char*>(mmap(nullptr, 4 * kUnit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    span_ = AppAddr(round_up(AppAddr(mapped_).value, kUnit));
    gone_ = span_ + kUnit;
    memset(span_.ptr<void>(), 'x', 2 * kUnit);
    memset((gone_ + kUnit).ptr<void>(), 0, 16);
    shadow::set_span({span_, gone_ + kUnit, [](AppAddr begin, AppAddr end) {
                        if (end <= gone_) return shadow::kNoBadByte;
                        return begin < gone_ ? gone_ : begin;
                      }});
  }

  void TearDown() override {
    shadow::set_span({});
    munmap(mapped_, 4 * kUnit);
    TextEntries::TearDown();
  }

  char* mapped_ = nullptr;
  AppAddr span_;
  inline static AppAddr gone_;
};

TEST_F(TextEntriesInSpan, MemoryThatIsNotThereIsReportedThoughItsShadowReadsZero) {
  for (const TextCall& call : text_calls()) {
    for (const std::size_t count : {1, 4, 16, 200}) {
      char* const begin = (gone_ - count * call.char_bytes).ptr<char>();
      call.call(begin, count);
      expect_no_fault(call.function, "ends at an empty unit, " + std::to_string(count));
      call.call(begin, count + 1);
      expect_bad_access(call.function, call.is_write, gone_.ptr<void>(), "runs into an empty unit");
      call.call(gone_.ptr<char>(), count);
      expect_bad_access(call.function, !call.reads_first(), gone_.ptr<void>(), "in an empty unit");
      memset(begin, 'x', 2 * count * call.char_bytes);
      FaultRecord::clear();
    }
  }
}

TEST_F(TextEntries, EveryExportedTextFunctionIsInTheTable) {
  std::set<std::string> tested;
  for (const TextCall& call : text_calls()) tested.insert(call.function);
  // These have tests of their own below.
  for (const char* name : {"memrchr", "swab"}) tested.insert(name);
  for (const char* name : {"memcpy",
                           "memmove",
                           "mempcpy",
                           "memset",
                           "memcmp",
                           "bcmp",
                           "bcopy",
                           "bzero",
                           "explicit_bzero",
                           "memchr",
                           "memrchr",
                           "rawmemchr",
                           "memmem",
                           "memccpy",
                           "swab",
                           "strlen",
                           "strnlen",
                           "strcpy",
                           "stpcpy",
                           "strncpy",
                           "stpncpy",
                           "strcat",
                           "strncat",
                           "strcmp",
                           "strncmp",
                           "strcasecmp",
                           "strncasecmp",
                           "strchr",
                           "strrchr",
                           "strchrnul",
                           "index",
                           "rindex",
                           "strstr",
                           "strcasestr",
                           "strspn",
                           "strcspn",
                           "strpbrk",
                           "strsep",
                           "strtok",
                           "strtok_r",
                           "strdup",
                           "strndup",
                           "strcoll",
                           "strxfrm",
                           "__memcpy_chk",
                           "__memmove_chk",
                           "__mempcpy_chk",
                           "__memset_chk",
                           "__explicit_bzero_chk",
                           "__strcpy_chk",
                           "__stpcpy_chk",
                           "__strncpy_chk",
                           "__stpncpy_chk",
                           "__strcat_chk",
                           "__strncat_chk",
                           "__wmemcpy_chk",
                           "__wmemmove_chk",
                           "__wmempcpy_chk",
                           "__wmemset_chk",
                           "__wcscpy_chk",
                           "__wcpcpy_chk",
                           "__wcsncpy_chk",
                           "__wcpncpy_chk",
                           "__wcscat_chk",
                           "__wcsncat_chk"}) {
    EXPECT_EQ(tested.count(name), 1u) << name;
    EXPECT_NE(dlsym(RTLD_DEFAULT, name), dlsym(RTLD_NEXT, name)) << name << " is libc's own here";
  }
}

TEST_F(TextEntries, EveryEntryPointStandsBeforeOneOfLibcs) {
  ASSERT_GT(__stop_penumbra_real - __start_penumbra_real, 100);
  for (RealSlot* slot = __start_penumbra_real; slot != __stop_penumbra_real; ++slot) {
    EXPECT_TRUE(dlsym(RTLD_NEXT, slot->name) != nullptr || dlvsym(RTLD_NEXT, slot->name, "GLIBC_2.2.5") != nullptr)
        << "a program would find '" << slot->name << "' only here";
    EXPECT_NE(slot->function, nullptr) << slot->name;
  }
}

TEST_F(TextEntries, ATextWithoutTerminatorIsReportedAtTheFirstBadByteAndNotBehindIt) {
  const PoisonedBlock block(24, 0);
  memset(block.begin(), 'x', 24);
  EXPECT_GT(strlen(block.begin()), 24u);
  expect_bad_access("strlen", false, block.end(), "");
}

TEST_F(TextEntries, SearchesBackwardsReadOnlyDownToTheHit) {
  for (const std::size_t count : kCounts) {
    const PoisonedBlock block(count, 0);
    block.begin()[0] = 'h';
    for (std::size_t i = 1; i < count; ++i) block.begin()[i] = 'x';
    EXPECT_EQ(memrchr(block.begin() - 8, 'h', count + 8), block.begin());
    expect_no_fault("memrchr", std::to_string(count));
    block.begin()[0] = 'x';
    EXPECT_EQ(memrchr(block.begin() - 8, 'h', count + 8), nullptr);
    expect_bad_access("memrchr", false, block.begin() - 1, std::to_string(count));
  }
}

TEST_F(TextEntries, SwabTouchesAnEvenNumberOfBytes) {
  char out[16];
  const PoisonedBlock block(10, 0);
  swab(block.begin(), out, 11);
  expect_no_fault("swab", "11 of 10");
  swab(block.begin(), out, 12);
  expect_bad_access("swab", false, block.end(), "12 of 10");
  swab(block.begin(), out, -5);
  expect_no_fault("swab", "a negative size");
}

TEST_F(TextEntries, SizeZeroTouchesNothingAnywhere) {
  const PoisonedBlock block(8, 0);
  char* const bad = block.end();
  char* const null = nullptr;
  char out[8];
  for (char* p : {bad, null}) {
    memcpy(p, p, 0);
    memcpy(out, p, 0);
    memmove(p, out, 0);
    memset(p, 1, (0));
    EXPECT_EQ(memcmp(p, out, 0), 0);
    EXPECT_EQ(memchr(p, 1, 0), nullptr);
    EXPECT_EQ(memrchr(p, 1, 0), nullptr);
    EXPECT_EQ(memmem(p, 0, "x", 1), nullptr);
    EXPECT_EQ(memccpy(p, out, 'x', 0), nullptr);
    EXPECT_EQ(strnlen(p, 0), 0u);
    EXPECT_EQ(strncmp(p, out, 0), 0);
    EXPECT_EQ(strncasecmp(p, out, 0), 0);
    EXPECT_EQ(strncpy(p, out, 0), p);
    EXPECT_EQ(wmemset(reinterpret_cast<wchar_t*>(p), 1, 0), reinterpret_cast<wchar_t*>(p));
    EXPECT_EQ(wcsnlen(reinterpret_cast<wchar_t*>(p), 0), 0u);
  }
  expect_no_fault("a function", "size 0");
}

TEST_F(TextEntries, AnUnlimitedLimitIsNoLimit) {
  const PoisonedBlock block(24, 3);
  char* const p = block.begin();
  memset(p, 'x', 23);
  p[23] = '\0';
  EXPECT_EQ(strnlen(p, SIZE_MAX), 23u);
  EXPECT_EQ(memchr(p, 0, SIZE_MAX), p + 23);
  EXPECT_EQ(strncmp(p, p, SIZE_MAX), 0);
  expect_no_fault("a function", "SIZE_MAX");
}

TEST_F(TextEntries, ANegativeSizeIsAWrappedAccess) {
  const PoisonedBlock block(24, 0);
  // The call itself cannot survive this size: only the check runs.
  const Touch touch("memcpy", __builtin_frame_address(0));
  touch.writes(block.begin(), static_cast<std::size_t>(-8));
  ASSERT_EQ(FaultRecord::count(), 1u);
  EXPECT_EQ(FaultRecord::at(0).kind, FaultKind::kWrappedAccess);
  FaultRecord::clear();
}

TEST_F(TextEntries, OverlappingCopiesAreReportedOnce) {
  char text[32] = "abcdefghijkl";
  memcpy(text + 4, text, 8);
  ASSERT_EQ(FaultRecord::count(), 1u);
  EXPECT_EQ(FaultRecord::at(0).kind, FaultKind::kOverlap);
  EXPECT_EQ(FaultRecord::at(0).other_addr.value, reinterpret_cast<std::uintptr_t>(text));
  FaultRecord::clear();
  strcpy(text, text + 2);
  ASSERT_EQ(FaultRecord::count(), 1u);
  EXPECT_STREQ(FaultRecord::at(0).function, "strcpy");
  FaultRecord::clear();
  // Side by side, the same place twice, and what may overlap.
  memcpy(text, text + 8, 8);
  memcpy(text, text, 8);
  memmove(text + 1, text, 8);
  expect_no_fault("memcpy", "no overlap");
  Options options;
  options.overlap = false;
  init(options, Hooks{});
  memcpy(text + 4, text, 8);
  expect_no_fault("memcpy", "overlap=0");
}

TEST_F(TextEntries, StrictMemcmpOffReadsUpToTheFirstDifference) {
  const PoisonedBlock block(8, 0);
  memset(block.begin(), 'x', 8);
  const char differs[] = "xxxy____________";
  const char equal[] = "xxxxxxxxxxxxxxxx";
  EXPECT_GT(0, memcmp(block.begin(), differs, 16));
  expect_bad_access("memcmp", false, block.end(), "strict");
  Options options;
  options.strict_memcmp = false;
  init(options, Hooks{});
  EXPECT_GT(0, memcmp(block.begin(), differs, 16));
  expect_no_fault("memcmp", "strict_memcmp=0");
  EXPECT_EQ(0, memcmp(block.begin(), equal, 16));
  expect_bad_access("memcmp", false, block.end(), "strict_memcmp=0, equal");
}

TEST_F(TextEntries, ComparisonsStopAtTheFirstDifference) {
  const PoisonedBlock block(8, 0);
  memset(block.begin(), 'x', 8);
  EXPECT_LT(strcmp(block.begin(), "xxxxxxxy"), 0);
  EXPECT_LT(strncmp(block.begin(), "xxxxxxxy and more", 20), 0);
  EXPECT_LT(strcasecmp(block.begin(), "xxxxxxxY"), 0);
  expect_no_fault("strcmp", "they differ at the last byte");
}

TEST_F(TextEntries, TokensAreFollowedThroughTheText) {
  const PoisonedBlock block(12, 0);
  char* const p = block.begin();
  memcpy(p, "ab,,cd,efghi", 12);  // no terminator
  EXPECT_STREQ(strtok(p, ","), "ab");
  EXPECT_STREQ(strtok(nullptr, ","), "cd");
  expect_no_fault("strtok", "terminated tokens");
  EXPECT_EQ(strtok(nullptr, ","), p + 7);
  expect_bad_access("strtok", false, block.end(), "the last token");
}

TEST_F(TextEntries, SplittingATextTouchesItAndThePlaceThatNamesIt) {
  const PoisonedBlock block(4, 0);
  memcpy(block.begin(), "abc", 4);
  char* s = block.begin();
  EXPECT_STREQ(strsep(&s, ","), "abc");
  EXPECT_EQ(s, nullptr);
  EXPECT_EQ(strsep(&s, ","), nullptr);
  expect_no_fault("strsep", "a whole text");
}

TEST_F(TextEntries, AMisalignedWideTextIsWalkedCharacterByCharacter) {
  const PoisonedBlock block(41, 0);
  char* const p = block.begin() + 1;
  const auto* const text = reinterpret_cast<const wchar_t*>(p);
  for (int i = 0; i < 10; ++i) {
    const wchar_t c = i < 9 ? L'x' : L'\0';
    memcpy(p + 4 * i, &c, sizeof c);
  }
  const Scan terminated = scan_for(text, kNoLimit, L'\0');
  EXPECT_EQ(terminated.end, ScanEnd::kHit);
  EXPECT_EQ(terminated.passed, 9u);
  const wchar_t x = L'x';
  memcpy(p + 36, &x, sizeof x);
  const Scan open = scan_for(text, kNoLimit, L'\0');
  EXPECT_EQ(open.end, ScanEnd::kBad);
  EXPECT_EQ(open.passed, 10u);
}

TEST_F(TextEntries, TheContextOfAFaultIsTheCaller) {
  const PoisonedBlock block(8, 0);
  char out[16];
  memcpy(out, block.begin(), 9);
  ASSERT_EQ(FaultRecord::count(), 1u);
  const CodeContext context = FaultRecord::at(0).context;
  FaultRecord::clear();
  Dl_info info{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(context.pc), &info), 0);
  Dl_info self{};
  static const int anchor = 0;
  ASSERT_NE(dladdr(&anchor, &self), 0);
  EXPECT_EQ(info.dli_fbase, self.dli_fbase);
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  EXPECT_LE(context.sp, here + 16);
  EXPECT_GT(context.sp, here - 4096);
}

TEST_F(TextEntries, LibcOffPassesStraightThrough) {
  Options options;
  options.libc = false;
  init(options, Hooks{});
  EXPECT_FALSE(is_checking());
  const PoisonedBlock block(8, 0);
  char out[16];
  memcpy(out, block.begin(), 9);
  EXPECT_GT(strlen(block.begin()), 8u);
  expect_no_fault("memcpy", "libc=0");
}

// What the functions return is libc's answer; here against plain definitions, over random texts and ends.
TEST_F(TextEntries, ResultsAreLibcs) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const std::size_t count = 1 + random() % 300;
    const PoisonedBlock block(count, random() % 8);
    char* const p = block.begin();
    for (std::size_t i = 0; i + 1 < count; ++i) p[i] = "abAB,"[random() % 5];
    p[count - 1] = '\0';
    const std::string text(p);
    ASSERT_EQ(strlen(p), text.size());
    const std::size_t comma = text.find(',');
    ASSERT_EQ(strchr(p, ','), comma == std::string::npos ? nullptr : p + comma);
    ASSERT_EQ(strcspn(p, ",B"), std::min(text.find_first_of(",B"), text.size()));
    ASSERT_EQ(strspn(p, "ab"), std::min(text.find_first_not_of("ab"), text.size()));
    const std::size_t found = text.find("abA");
    ASSERT_EQ(strstr(p, "abA"), found == std::string::npos ? nullptr : p + found);
    ASSERT_EQ(memmem(p, text.size(), "abA", 3), found == std::string::npos ? nullptr : p + found);
    ASSERT_EQ(strcmp(p, text.c_str()), 0);
  }
  expect_no_fault("a function", "random texts");
}

TEST_F(TextEntries, ADifferenceIsFoundWhereverItLies) {
  for (std::size_t at = 0; at < 80; ++at) {
    for (const std::size_t offset : {0, 3}) {
      const PoisonedBlock block(at + 1, offset);  // bad right behind the difference
      char other[100];
      for (std::size_t i = 0; i <= at; ++i) block.begin()[i] = other[i] = 'x';
      other[at] = 'y';
      EXPECT_LT(strcmp(block.begin(), other), 0);
      EXPECT_LT(strncasecmp(block.begin(), other, 90), 0);
      expect_no_fault("strcmp", std::to_string(at));
      other[at] = 'x';
      other[at + 1] = '\0';
      EXPECT_GT(strcmp(block.begin(), other), 0);
      expect_bad_access("strcmp", false, block.end(), std::to_string(at));
    }
  }
}

using TextEntriesDeathTest = TextEntries;

TEST_F(TextEntriesDeathTest, TheFortifyCheckItselfStays) {
  char small[8];
  char big[64] = "longer than eight";
  EXPECT_DEATH(__memcpy_chk(small, big, 16, sizeof small), "buffer overflow detected");
  EXPECT_DEATH(__strcpy_chk(small, big, sizeof small), "buffer overflow detected");
}

}  // namespace
}  // namespace penumbra::libc::testing
