// Limits of control groups, read from hierarchies made of plain files.
#include "runtime/base/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/scratch_folder.h"

namespace penumbra::os {
namespace {

class Cgroup : public ::testing::Test {
 protected:
  std::uint64_t limit() const { return cgroup_memory_limit((folder_ / "self").c_str(), (folder_ / "root").c_str()); }
  void group(const char* path, const char* file, const char* text) const {
    std::filesystem::create_directories(folder_ / ("root" + std::string(path)));
    folder_.write("root" + std::string(path) + "/" + file, text);
  }
  tests::ScratchFolder folder_;
};

TEST_F(Cgroup, TheLeastOfOwnAndUpperGroupsCounts) {
  folder_.write("self", "0::/a/b\n");
  group("/a/b", "memory.max", "max\n");
  group("/a", "memory.max", "4194304\n");
  group("", "memory.max", "8388608\n");
  EXPECT_EQ(limit(), 4194304u);
  group("/a/b", "memory.max", "65536\n");
  EXPECT_EQ(limit(), 65536u);
}

TEST_F(Cgroup, VersionOneIsReadBelowItsController) {
  folder_.write("self", "9:name=systemd:/\n4:cpu,cpuacct:/x\n3:memory:/jobs/7\n0::/\n");
  group("/memory", "memory.limit_in_bytes", "9223372036854771712\n");
  group("/memory/jobs/7", "memory.limit_in_bytes", "1048576\n");
  EXPECT_EQ(limit(), 1048576u);
}

TEST_F(Cgroup, InAContainerTheVisibleRootCounts) {
  folder_.write("self", "0::/\n");
  group("", "memory.max", "2097152\n");
  EXPECT_EQ(limit(), 2097152u);
}

TEST_F(Cgroup, NothingThatCanBeReadIsNoLimit) {
  EXPECT_EQ(limit(), kNoMemoryLimit);
  folder_.write("self", "");
  EXPECT_EQ(limit(), kNoMemoryLimit);
  folder_.write("self", "0::/a");
  group("/a", "memory.max", "");
  EXPECT_EQ(limit(), kNoMemoryLimit);
  EXPECT_GT(cgroup_memory_limit(), 0u);
}

}  // namespace
}  // namespace penumbra::os
