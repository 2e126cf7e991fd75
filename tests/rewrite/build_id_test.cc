// The build-id from a file's headers alone is the one that reading all of it finds, and nothing makes it fail.
#include "instrument/rewrite/build_id.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "instrument/rewrite/elf_image.h"

namespace penumbra::rewrite {
namespace {

namespace fs = std::filesystem;

TEST(BuildId, FromHeadersItIsTheOneThatTheWholeFileHas) {
  for (const char* file : {"/proc/self/exe", "/lib/x86_64-linux-gnu/libc.so.6", "/bin/ls", "/bin/bash"}) {
    const std::string id = build_id_of_file(file);
    EXPECT_EQ(id, ElfImage(file).build_id()) << file;
    if (std::string_view(file) != "/proc/self/exe") EXPECT_EQ(id.size(), 40u) << file;
  }
}

TEST(BuildId, WhatIsNoModuleHasNone) {
  for (const char* file : {"/nowhere", "/dev/zero", "/etc/passwd", "/proc/self/maps", "/usr"}) {
    EXPECT_EQ(build_id_of_file(file), "") << file;
  }
}

TEST(BuildId, FilesThatEndEarlyAreSurvived) {
  std::ifstream in("/bin/ls", std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  const std::string id = build_id_of_file("/bin/ls");
  std::string name = (fs::temp_directory_path() / "penumbra-build-id.XXXXXX").string();
  ASSERT_GE(mkstemp(name.data()), 0);
  bool was_found = false;
  for (std::size_t bytes = 0; bytes < 2048; ++bytes) {
    std::ofstream(name, std::ios::binary) << whole.substr(0, bytes);
    const std::string found = build_id_of_file(name);
    EXPECT_TRUE(found.empty() || found == id) << bytes;
    was_found |= found == id;
  }
  EXPECT_TRUE(was_found) << "the note lies within the first 2 KiB";
  fs::remove(name);
}

TEST(BuildId, NotesThatRunOutOfTheirSegmentAreNone) {
  const std::vector<std::uint8_t> note = {4, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 'G', 'N', 'U', 0, 0xab, 0xcd, 0, 0};
  EXPECT_EQ(build_id_in(note), "abcd");
  for (std::size_t bytes = 0; bytes < note.size(); ++bytes) {
    EXPECT_EQ(build_id_in(std::span(note).first(bytes)), "") << bytes;
  }
  std::vector<std::uint8_t> endless = note;
  endless[7] = 0xff;  // of a description longer than all memory
  EXPECT_EQ(build_id_in(endless), "");
}

}  // namespace
}  // namespace penumbra::rewrite
