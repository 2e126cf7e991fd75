// The environment without us, for lists of preloads in every shape: ours first, last, alone, twice, absent.
#include "runtime/process/preload_list.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace penumbra::process {
namespace {

using Environment = std::vector<std::string>;

Environment without_us(const Environment& before) {
  std::vector<char*> envp;
  for (const std::string& entry : before) envp.push_back(const_cast<char*>(entry.c_str()));
  envp.push_back(nullptr);
  const std::size_t bytes = bytes_without_preload(envp.data());
  if (bytes == 0) return {"unchanged"};
  // Exactly as large as was asked for, so that a sanitizer or a guard byte notices a byte too many.
  std::vector<char> storage(bytes + 1, '\x7f');
  Environment after;
  for (char** entry = build_without_preload(envp.data(), storage.data()); *entry != nullptr; ++entry) {
    after.emplace_back(*entry);
  }
  EXPECT_EQ(storage.back(), '\x7f');
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i], envp[i]);
  return after;
}

TEST(PreloadList, AVariableThatHeldOnlyUsGoes) {
  EXPECT_EQ(without_us({"A=1", "LD_PRELOAD=/x/libpenumbra.so", "B=2"}), (Environment{"A=1", "B=2"}));
  EXPECT_EQ(without_us({"LD_PRELOAD=libpenumbra.so"}), Environment{});
}

TEST(PreloadList, OthersKeepTheirOrder) {
  EXPECT_EQ(without_us({"LD_PRELOAD=/a.so:/x/libpenumbra.so /b.so"}), Environment{"LD_PRELOAD=/a.so:/b.so"});
  EXPECT_EQ(without_us({"LD_PRELOAD= /x/libpenumbra.so::/b.so:/y/libpenumbra.so"}), Environment{"LD_PRELOAD=/b.so"});
}

TEST(PreloadList, ALibraryOfAnotherNameIsNotOurs) {
  EXPECT_EQ(without_us({"LD_PRELOAD=/x/notlibpenumbra.so:/libpenumbra.so.1:/libpenumbra.so/x"}),
            Environment{"unchanged"});
}

TEST(PreloadList, AnEnvironmentWithoutUsIsLeftAlone) {
  EXPECT_EQ(without_us({}), Environment{"unchanged"});
  EXPECT_EQ(without_us({"LD_PRELOAD=", "LD_PRELOADED=/x/libpenumbra.so"}), Environment{"unchanged"});
  EXPECT_EQ(bytes_without_preload(nullptr), 0u);
}

TEST(PreloadList, EveryOfSeveralPreloadVariablesIsCleaned) {
  EXPECT_EQ(without_us({"LD_PRELOAD=/x/libpenumbra.so", "C=3", "LD_PRELOAD=/b.so:libpenumbra.so"}),
            (Environment{"C=3", "LD_PRELOAD=/b.so"}));
}

}  // namespace
}  // namespace penumbra::process
