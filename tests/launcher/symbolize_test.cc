// The symbolizer against this very program, whose functions and lines the compiler tells us here, and against garbage.
#include "runtime/launcher/symbolize.h"

#include <gtest/gtest.h>
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "runtime/base/symbolize_protocol.h"
#include "tests/support/scratch_folder.h"

namespace penumbra::launcher {

// Not in the unnamed namespace, so that its linkage name is known.
__attribute__((noinline)) std::uintptr_t symbolize_test_outer(int& line);

namespace {

std::string own_path() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

std::uint64_t own_bias() {
  return _r_debug.r_map->l_addr;
}

std::uint64_t file_address(std::uintptr_t pc) {
  return pc - own_bias();
}

// An address inside the instruction that takes it, and so inside this function wherever that is inlined.
__attribute__((always_inline)) inline std::uintptr_t here() {
  std::uintptr_t pc;
  asm volatile("lea -1(%%rip), %0" : "=r"(pc));
  return pc;
}

int lines_of(const std::string& answer) {
  return static_cast<int>(std::count(answer.begin(), answer.end(), '\n'));
}

}  // namespace

__attribute__((noinline)) std::uintptr_t symbolize_test_outer(int& line) {
  line = __LINE__ + 1;
  return here();
}

namespace {

TEST(Symbolizer, NamesFunctionsFilesAndLinesAndWhatWasInlined) {
  int line = 0;
  const std::uintptr_t pc = symbolize_test_outer(line);
  Symbolizer symbolizer;
  const std::vector<Frame> frames = symbolizer.lookup(own_path(), "", file_address(pc));
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_NE(frames[0].mangled.find("here"), std::string::npos);
  EXPECT_TRUE(frames[0].file.ends_with("symbolize_test.cc")) << frames[0].file;
  EXPECT_EQ(frames[1].mangled, "_ZN8penumbra8launcher20symbolize_test_outerERi");
  EXPECT_EQ(frames[1].demangled, "penumbra::launcher::symbolize_test_outer(int&)");
  EXPECT_TRUE(frames[1].file.ends_with("symbolize_test.cc")) << frames[1].file;
  EXPECT_EQ(frames[1].line, line);
  const auto begin = reinterpret_cast<std::uintptr_t>(&symbolize_test_outer);
  EXPECT_EQ(frames[1].symbol_offset, pc - begin);
  EXPECT_GT(frames[1].symbol_size, frames[1].symbol_offset);
}

TEST(Symbolizer, ALibraryWithoutDebugInformationStillHasItsSymbols) {
  Dl_info info;
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&getenv), &info), 0);
  const std::uint64_t address =
      reinterpret_cast<std::uintptr_t>(info.dli_saddr) - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  Symbolizer symbolizer;
  const std::vector<Frame> frames = symbolizer.lookup(std::filesystem::canonical(info.dli_fname), "", address + 1);
  ASSERT_FALSE(frames.empty());
  EXPECT_EQ(frames.back().mangled, "getenv");
  EXPECT_EQ(frames.back().symbol_offset, 1u);
  EXPECT_GT(frames.back().symbol_size, 1u);
}

TEST(Symbolizer, AnotherBuildIdIsAnotherFile) {
  int line = 0;
  const std::uint64_t address = file_address(symbolize_test_outer(line));
  Symbolizer symbolizer;
  EXPECT_TRUE(symbolizer.lookup(own_path(), "0123456789abcdef0123456789abcdef01234567", address).empty());
  EXPECT_FALSE(symbolizer.lookup(own_path(), "", address).empty());
}

TEST(Symbolizer, AnAnswerIsLinesOfSixFieldsAndAnEmptyLine) {
  int line = 0;
  const std::uint64_t address = file_address(symbolize_test_outer(line));
  std::ostringstream request;
  request << own_path() << "\t\t" << std::hex << address;
  Symbolizer symbolizer;
  std::istringstream answer(answer_request(symbolizer, request.str()));
  std::string text;
  int frames = 0;
  while (std::getline(answer, text) && !text.empty()) {
    EXPECT_EQ(std::count(text.begin(), text.end(), '\t'), 5) << text;
    ++frames;
  }
  EXPECT_EQ(frames, 2);
  EXPECT_TRUE(text.empty());
  EXPECT_FALSE(std::getline(answer, text)) << "something behind the empty line: " << text;
}

TEST(Symbolizer, GarbageIsAnsweredByAnEmptyLineEachTime) {
  Symbolizer symbolizer;
  const std::string requests[] = {
      "",
      "\t",
      "\t\t",
      "\t\t\t",
      "x",
      "/bin/ls",
      "/bin/ls\t",
      "/bin/ls\t\t",
      "/bin/ls\t\tzz",
      "/bin/ls\t\t12 34",
      "/bin/ls\tnot hex\t1000",
      "/bin/ls\t\tffffffffffffffff",
      "/bin/ls\t\t123456789012345678901",
      "/nosuch\t\t10",
      "/etc/passwd\t\t10",
      "/\t\t10",
      "/dev/null\t\t10",
      std::string(10000, '\t'),
      std::string(100000, 'x') + "\t\t1",
  };
  for (const std::string& request : requests) EXPECT_EQ(answer_request(symbolizer, request), "\n") << request;
}

TEST(Symbolizer, DamagedFilesAreSurvived) {
  tests::ScratchFolder folder;
  std::ifstream file(own_path(), std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  int line = 0;
  const std::uint64_t address = file_address(symbolize_test_outer(line));
  std::mt19937_64 random(20240229);
  for (int round = 0; round < 20; ++round) {
    std::string bad = good;
    if (round % 4 == 0) bad.resize(random() % bad.size());
    for (int i = 0; i < 2000 && !bad.empty(); ++i) bad[random() % bad.size()] = static_cast<char>(random());
    if (round % 2 == 0 && bad.size() > 64) bad.replace(0, 64, good, 0, 64);  // let it get past the header
    const std::string path = folder.write("bad", bad);
    Symbolizer symbolizer;
    const std::string answer = answer_request(
        symbolizer, path + "\t\t" + [&] {
          std::ostringstream hex;
          hex << std::hex << address;
          return hex.str();
        }());
    EXPECT_TRUE(answer.ends_with("\n"));
    EXPECT_LE(lines_of(answer), static_cast<int>(kSymbolizeFrames) + 1);
  }
}

TEST(Symbolizer, ServesRequestsInOrderUntilTheInputEnds) {
  std::istringstream in("garbage\n/bin/ls\t\tzz\nlast without newline");
  std::ostringstream out;
  serve_symbolizer(in, out);
  EXPECT_EQ(out.str(), "\n\n\n");
}

}  // namespace
}  // namespace penumbra::launcher
