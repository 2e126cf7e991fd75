// What a module is known by is told from a file's headers alone as by reading all of it, and nothing makes that fail.
#include "instrument/rewrite/identity.h"

#include <gtest/gtest.h>
#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "instrument/rewrite/elf_image.h"
#include "tests/support/scratch_folder.h"

namespace penumbra::rewrite {
namespace {

TEST(Identity, FromHeadersItIsTheOneThatTheWholeFileHas) {
  for (const char* file : {"/proc/self/exe", "/lib/x86_64-linux-gnu/libc.so.6", "/bin/ls", "/bin/bash"}) {
    const std::string id = identity_of_file(file);
    EXPECT_EQ(id, ElfImage(file).identity()) << file;
    if (std::string_view(file) != "/proc/self/exe") EXPECT_EQ(id.size(), 40u) << file;
  }
}

TEST(Identity, WhatIsNoModuleHasNone) {
  for (const char* file : {"/nowhere", "/dev/zero", "/etc/passwd", "/proc/self/maps", "/usr"}) {
    EXPECT_EQ(identity_of_file(file), "") << file;
  }
}

std::string contents_of(const char* file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Identity, FilesThatEndEarlyAreSurvived) {
  const std::string whole = contents_of("/bin/ls");
  const std::string id = identity_of_file("/bin/ls");
  const tests::ScratchFolder folder;
  bool was_found = false;
  for (std::size_t bytes = 0; bytes < 2048; ++bytes) {
    const std::string found = identity_of_file(folder.write("draft", std::string_view(whole).substr(0, bytes)));
    EXPECT_TRUE(found.empty() || found == id) << bytes;
    was_found |= found == id;
  }
  EXPECT_TRUE(was_found) << "the note lies within the first 2 KiB";
}

TEST(Identity, WithoutABuildIdItIsTheKeyOfWhatIsMappedAndNeverWritten) {
  std::string file = contents_of("/bin/ls");
  for (std::size_t at = file.find("GNU"); at != std::string::npos && at < 4096; at = file.find("GNU", at + 1)) {
    file[at] = 'X';  // no note is GNU's any more
  }
  const tests::ScratchFolder folder;
  const std::string id = identity_of_file(folder.write("draft", file));
  EXPECT_EQ(id.substr(0, 8), "content-");
  EXPECT_EQ(id, ElfImage(folder.write("draft", file)).identity());

  const auto changed_at = [&](std::size_t offset) {
    std::string other = file;
    other[offset] = static_cast<char>(other[offset] ^ 1);
    return identity_of_file(folder.write("draft", other)) != id;
  };
  Elf64_Ehdr header;
  std::memcpy(&header, file.data(), sizeof header);
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, file.data() + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type != PT_LOAD) continue;
    const bool is_written = (segment.p_flags & PF_W) != 0;
    EXPECT_EQ(changed_at(segment.p_offset + segment.p_filesz - 1), !is_written) << i;
    EXPECT_EQ(changed_at(segment.p_offset + segment.p_filesz / 2), !is_written) << i;
  }
}

TEST(Identity, NotesThatRunOutOfTheirSegmentAreNone) {
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
