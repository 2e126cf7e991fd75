// What a module is known by is told from a file's headers alone as by reading all of it, and nothing makes that fail.
#include "instrument/rewrite/identity.h"

#include <gtest/gtest.h>
#include <elf.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "instrument/rewrite/elf_image.h"

namespace penumbra::rewrite {
namespace {

namespace fs = std::filesystem;

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

// A file that is written again and again.
class Draft {
 public:
  Draft() : name_((fs::temp_directory_path() / "penumbra-identity.XXXXXX").string()) { close(mkstemp(name_.data())); }
  ~Draft() { fs::remove(name_); }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  const std::string& write(std::string_view contents) {
    std::ofstream(name_, std::ios::binary) << contents;
    return name_;
  }

 private:
  std::string name_;
};

TEST(Identity, FilesThatEndEarlyAreSurvived) {
  const std::string whole = contents_of("/bin/ls");
  const std::string id = identity_of_file("/bin/ls");
  Draft draft;
  bool was_found = false;
  for (std::size_t bytes = 0; bytes < 2048; ++bytes) {
    const std::string found = identity_of_file(draft.write(std::string_view(whole).substr(0, bytes)));
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
  Draft draft;
  const std::string id = identity_of_file(draft.write(file));
  EXPECT_EQ(id.substr(0, 8), "content-");
  EXPECT_EQ(id, ElfImage(draft.write(file)).identity());

  const auto changed_at = [&](std::size_t offset) {
    std::string other = file;
    other[offset] = static_cast<char>(other[offset] ^ 1);
    return identity_of_file(draft.write(other)) != id;
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
