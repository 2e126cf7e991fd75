// What leaves the cache, by rules judged without a file, and that it really goes, on files with made-up times.
#include "runtime/launcher/cache_prune.h"

#include <gtest/gtest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "instrument/rewriter_revision.h"
#include "tests/support/scratch_folder.h"

namespace penumbra::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::time_t kNow = 1'000'000'000;
constexpr std::time_t kMinute = 60;
constexpr std::time_t kDay = 24 * 60 * kMinute;
constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

CacheFile ours(const char* name, std::time_t age, std::uint64_t bytes = 100) {
  return {name, bytes, kNow - age, false, true};
}

CacheFile of_another(const char* name, std::time_t age, std::uint64_t bytes = 100) {
  return {name, bytes, kNow - age, false, false};
}

std::vector<std::string> victims(const std::vector<CacheFile>& files, std::uint64_t limit) {
  std::vector<std::string> names;
  for (const CacheFile& file : choose_victims(files, limit, kNow)) names.push_back(file.name);
  return names;
}

using Names = std::vector<std::string>;

TEST(CachePrune, P1WhatWasUsedWithinTheHourStaysAboveAnyLimit) {
  CacheFile half = ours("half", 59 * kMinute);
  half.is_half_made = true;
  EXPECT_EQ(victims({ours("a", 0), of_another("b", 59 * kMinute), half}, 0), Names{});
  EXPECT_EQ(victims({ours("a", 0), of_another("b", 61 * kMinute)}, 0), Names{"b"});
}

TEST(CachePrune, P1ATimeInTheFutureCountsAsUsed) {
  EXPECT_EQ(victims({of_another("b", -kDay)}, 0), Names{});
}

TEST(CachePrune, P2HalfMadeFilesAndOtherRewritersFilesOfAWeekGoBelowTheLimit) {
  CacheFile half = ours("half", 2 * 60 * kMinute);
  half.is_half_made = true;
  EXPECT_EQ(
      victims({ours("mine", 400 * kDay), of_another("young", 6 * kDay), of_another("old", 8 * kDay), half}, kNoLimit),
      (Names{"old", "half"}));
}

TEST(CachePrune, P3TheLeastRecentlyUsedGoFirstAndThoseOfOtherRewritersBefore) {
  const std::vector<CacheFile> files = {ours("m3", 3 * kDay), ours("m1", kDay), of_another("o2", 2 * kDay),
                                        of_another("o4", 4 * kDay), ours("now", 0)};
  EXPECT_EQ(victims(files, 500), Names{});
  EXPECT_EQ(victims(files, 499), Names{"o4"});
  EXPECT_EQ(victims(files, 300), (Names{"o4", "o2"}));
  EXPECT_EQ(victims(files, 200), (Names{"o4", "o2", "m3"}));
  EXPECT_EQ(victims(files, 0), (Names{"o4", "o2", "m3", "m1"}));
}

TEST(CachePrune, WhatGoesForItsAgeCountsTowardsTheLimit) {
  EXPECT_EQ(victims({ours("mine", 3 * kDay), of_another("old", 8 * kDay)}, 100), Names{"old"});
}

TEST(CachePrune, OnlyNamesOfModuleFilesAreTheCaches) {
  CacheFile file;
  EXPECT_FALSE(parse_cache_name("", file));
  EXPECT_FALSE(parse_cache_name("notes.txt", file));
  EXPECT_FALSE(parse_cache_name("README.module", file));
  EXPECT_FALSE(parse_cache_name("ab12.module.bak", file));
  ASSERT_TRUE(parse_cache_name("ab12.0123456789ab.module", file));
  EXPECT_FALSE(file.is_half_made);
  EXPECT_FALSE(file.is_ours);
  ASSERT_TRUE(parse_cache_name("ab12.w" PENUMBRA_MODULE_SUFFIX, file));
  EXPECT_TRUE(file.is_ours);
  ASSERT_TRUE(parse_cache_name("ab12" PENUMBRA_MODULE_SUFFIX ".aB3xYz", file));
  EXPECT_TRUE(file.is_half_made);
  EXPECT_TRUE(file.is_ours);
}

class CacheFolder : public testing::Test {
 protected:
  std::string put(const std::string& name, std::time_t age) {
    const std::string file = path_ + "/" + name;
    std::ofstream(file) << std::string(10'000, 'x');
    const timespec then{std::time(nullptr) - age, 0};
    const timespec times[2] = {then, then};
    EXPECT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
    return file;
  }

  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(path_)) all.insert(entry.path().filename());
    return all;
  }

  const tests::ScratchFolder folder_;
  const std::string& path_ = folder_.path();
};

using NameSet = std::set<std::string>;
const std::string kOurs = std::string("aa") + PENUMBRA_MODULE_SUFFIX;

TEST_F(CacheFolder, WhatTheRulesNameGoesAndWhatIsNotTheCachesStays) {
  put(kOurs, 30 * kDay);
  put("bb.0123456789ab.module", 30 * kDay);
  put("somebody's", 30 * kDay);
  fs::create_directory(path_ + "/cc.0123456789ab.module");
  fs::create_symlink("nowhere", path_ + "/dd.0123456789ab.module");
  EXPECT_EQ(prune_cache(path_, kNoLimit).size(), 1u);
  EXPECT_EQ(names(), (NameSet{kOurs, "somebody's", "cc.0123456789ab.module", "dd.0123456789ab.module"}));
  EXPECT_EQ(prune_cache(path_, 0).size(), 1u);
  EXPECT_FALSE(names().contains(kOurs));
}

TEST_F(CacheFolder, AUsedFileStaysAndKeepsItsTimeOfChange) {
  const std::string file = put(kOurs, 30 * kDay);
  struct stat before {};
  ASSERT_EQ(stat(file.c_str(), &before), 0);
  EXPECT_TRUE(note_use(file));
  struct stat after {};
  ASSERT_EQ(stat(file.c_str(), &after), 0);
  EXPECT_EQ(after.st_mtim.tv_sec, before.st_mtim.tv_sec);
  EXPECT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
  EXPECT_TRUE(prune_cache(path_, 0).empty());
  EXPECT_FALSE(note_use(path_ + "/ee.0123456789ab.module"));
}

TEST_F(CacheFolder, NothingGoesWhileAnotherProcessLooksForFiles) {
  put("bb.0123456789ab.module", 30 * kDay);
  {
    const CacheUse use(path_);
    const CacheUse another(path_);
    EXPECT_TRUE(prune_cache(path_, 0).empty());
  }
  EXPECT_EQ(prune_cache(path_, 0).size(), 1u);
}

TEST_F(CacheFolder, AFileThatIsMappedStaysWithWhoMappedIt) {
  const int fd = open(put("bb.0123456789ab.module", 0).c_str(), O_RDONLY);
  const auto* bytes = static_cast<const char*>(mmap(nullptr, 10'000, PROT_READ, MAP_SHARED, fd, 0));
  close(fd);
  ASSERT_NE(static_cast<const void*>(bytes), MAP_FAILED);
  // Mapping it was a use, long ago.
  const timespec then{std::time(nullptr) - 30 * kDay, 0};
  const timespec times[2] = {then, then};
  ASSERT_EQ(utimensat(AT_FDCWD, (path_ + "/bb.0123456789ab.module").c_str(), times, 0), 0);
  EXPECT_EQ(prune_cache(path_, 0).size(), 1u);
  EXPECT_EQ(bytes[9'999], 'x');
  munmap(const_cast<char*>(bytes), 10'000);
}

TEST_F(CacheFolder, ClearingTakesAllModuleFilesWhateverTheirAge) {
  put(kOurs, 0);
  put("bb.0123456789ab.module", 30 * kDay);
  put(kOurs + ".aB3xYz", 0);
  put("somebody's", 0);
  EXPECT_EQ(clear_cache(path_).size(), 3u);
  EXPECT_EQ(names(), NameSet{"somebody's"});
}

TEST(CachePrune, AFolderThatIsNotThereIsNoTrouble) {
  EXPECT_TRUE(prune_cache("/nowhere/at/all", 0).empty());
  EXPECT_TRUE(list_cache("/nowhere/at/all").empty());
  const CacheUse use("/nowhere/at/all");
}

}  // namespace
}  // namespace penumbra::launcher
