// The verifiers over a fixed list of modules; with PENUMBRA_FULL=1 over every ELF file of /usr/bin and
// /usr/lib/x86_64-linux-gnu, with PENUMBRA_MODULE=FILE over that one. And that it sees what it is there for: damaged modules are complained of.
#include "tests/rewrite/verify.h"

#include <gtest/gtest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "tests/rewrite/verify_liveness.h"

namespace penumbra::rewrite {
namespace {

namespace fs = std::filesystem;

struct Rewritten {
  explicit Rewritten(const std::string& path)
      : image(path),
        program(image, decoder),
        liveness(program),
        relocator(program, liveness, {}),
        module(relocator.run()) {}

  Decoder decoder;
  ElfImage image;
  Program program;
  Liveness liveness;
  Relocator relocator;
  RewrittenModule module;
};

std::vector<std::string> modules() {
  if (const char* one = std::getenv("PENUMBRA_MODULE"); one != nullptr) return {one};
  if (std::getenv("PENUMBRA_FULL") == nullptr) {
    return {"/usr/bin/bash", "/usr/bin/perl", "/usr/lib/x86_64-linux-gnu/libz.so.1",
            "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib/x86_64-linux-gnu/libgmp.so.10"};
  }
  std::set<std::string> files;
  for (const char* folder : {"/usr/bin", "/usr/lib/x86_64-linux-gnu"}) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      std::error_code error;
      if (entry.is_regular_file(error)) files.insert(fs::canonical(entry.path(), error));
    }
  }
  return {files.begin(), files.end()};
}

std::string text_of(const Complaints& found) {
  return fmt::format("{} complaints\n{}", found.complaint_count, fmt::join(found.complaints, "\n"));
}

// verify(rewritten) gives the Complaints of each module.
template <class Verify>
void expect_no_complaints(Verify verify) {
  for (const std::string& path : modules()) {
    if (!fs::exists(path)) continue;
    try {
      const Complaints found = verify(Rewritten(path));
      EXPECT_EQ(found.complaint_count, 0u) << path << ": " << text_of(found);
    } catch (const ImageError&) {
      continue;  // scripts, other machines
    }
  }
}

TEST(Verify, ModulesOfThisSystemAreRight) {
  std::uint64_t instructions = 0;
  expect_no_complaints([&](const Rewritten& r) {
    Verdict verdict = verify_module(r.program, r.module);
    instructions += verdict.instructions;
    return verdict;
  });
  EXPECT_GT(instructions, 100'000u);
}

TEST(Verify, ChecksChangeOnlyWhatNobodyNeeds) {
  std::uint64_t checked = 0;
  std::uint64_t undecided = 0;
  expect_no_complaints([&](const Rewritten& r) {
    LivenessVerdict verdict = verify_liveness(r.program, r.module);
    checked += verdict.checked;
    undecided += verdict.undecided;
    return verdict;
  });
  RecordProperty("checked", std::to_string(checked));
  RecordProperty("undecided", std::to_string(undecided));
  EXPECT_TRUE(checked > 50'000 || std::getenv("PENUMBRA_MODULE") != nullptr) << checked;
  EXPECT_LE(undecided, checked / 100);
}

// A check that pushes what it changes does so because nothing is dead.
TEST(Verify, ChecksThatKeepNothingAreSeen) {
  Rewritten r("/usr/lib/x86_64-linux-gnu/libz.so.1");
  ASSERT_EQ(verify_liveness(r.program, r.module).complaint_count, 0u);
  const std::vector<std::uint8_t> whole = r.module.code;
  unsigned damaged = 0;
  unsigned seen = 0;
  const auto& places = r.module.places;
  for (std::size_t n = 0; n + 1 < places.size() && damaged < 20; ++n) {
    if (places[n].text_offset != places[n + 1].text_offset) continue;
    const std::uint32_t begin = places[n].code_offset;
    const std::uint32_t end = places[n + 1].code_offset;
    // push of one of the first eight registers ... pop of it, as a check without a red zone has them
    const std::uint8_t push = whole[begin];
    if (push < 0x50 || push > 0x57 || whole[end - 1] != push + 8) continue;
    r.module.code[begin] = 0x90;
    r.module.code[end - 1] = 0x90;
    ++damaged;
    seen += verify_liveness(r.program, r.module).complaint_count != 0;
    r.module.code = whole;
  }
  EXPECT_EQ(damaged, 20u);
  EXPECT_EQ(seen, damaged);
}

TEST(Verify, DamageIsSeen) {
  Rewritten r("/usr/lib/x86_64-linux-gnu/libz.so.1");
  ASSERT_EQ(verify_module(r.program, r.module).complaint_count, 0u);
  const RewrittenModule whole = r.module;
  // A patch one byte further on.
  r.module.patches[r.module.patches.size() / 2].text_offset += 1;
  EXPECT_NE(verify_module(r.program, r.module).complaint_count, 0u);
  r.module = whole;
  // A patch less: what it led away from runs where it is, under the other patches of its function.
  std::uint64_t seen = 0;
  for (std::size_t n = 0; n < whole.patches.size(); n += 7) {
    r.module.patches.erase(r.module.patches.begin() + static_cast<std::ptrdiff_t>(n));
    seen += verify_module(r.program, r.module).complaint_count != 0;
    r.module = whole;
    if (n > 400) break;
  }
  EXPECT_NE(seen, 0u);
  // A place that names another instruction.
  r.module.places[r.module.places.size() / 3].text_offset = r.module.places[r.module.places.size() / 2].text_offset;
  EXPECT_NE(verify_module(r.program, r.module).complaint_count, 0u);
  r.module = whole;
  // A link that leads elsewhere: the operand of some jump out of the area.
  r.module.code[r.module.links[r.module.links.size() / 2]] ^= 0x40;
  EXPECT_NE(verify_module(r.program, r.module).complaint_count, 0u);
}

}  // namespace
}  // namespace penumbra::rewrite
