// Where a program is found, what runs when it does, and the reasons for which it runs without us.
#include "runtime/launcher/program.h"

#include <gtest/gtest.h>
#include <elf.h>
#include <sys/stat.h>

#include <cstring>

#include "tests/support/scratch_folder.h"

namespace penumbra::launcher {
namespace {

using tests::ScratchFolder;

int status_of(const std::string& name, const std::string& path_list) {
  try {
    find_program(name, path_list.c_str());
  } catch (const ProgramError& error) {
    return error.exit_status;
  }
  return 0;
}

std::string static_program() {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = EM_X86_64;
  header.e_phentsize = sizeof(Elf64_Phdr);
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

TEST(FindProgram, ThePathIsSearchedInOrderAndASlashSkipsIt) {
  ScratchFolder first;
  ScratchFolder second;
  second.write("tool", "#!/bin/sh\n");
  const std::string path_list = (first / "nowhere") + ":" + (first / "") + ":" + (second / "");
  EXPECT_EQ(find_program("tool", path_list.c_str()).path, (second / "") + "/tool");
  first.write("tool", "#!/bin/sh\n");
  EXPECT_EQ(find_program("tool", path_list.c_str()).path, (first / "") + "/tool");
  EXPECT_EQ(find_program(second / "tool", "").path, second / "tool");
}

TEST(FindProgram, NotFoundIs127AndNotExecutableIs126) {
  ScratchFolder folder;
  folder.write("data", "text", 0644);
  EXPECT_EQ(status_of("absent", folder / ""), 127);
  EXPECT_EQ(status_of("", folder / ""), 127);
  EXPECT_EQ(status_of(folder / "absent", ""), 127);
  EXPECT_EQ(status_of(folder / "data/below", ""), 127);
  EXPECT_EQ(status_of("data", folder / ""), 126);
  EXPECT_EQ(status_of(folder / "data", ""), 126);
  EXPECT_EQ(status_of(folder / "", ""), 126) << "a folder";
}

TEST(FindProgram, AFileWithoutPermissionDoesNotHideOneFurtherOn) {
  ScratchFolder first;
  ScratchFolder second;
  first.write("tool", "", 0644);
  second.write("tool", "#!/bin/sh\n");
  EXPECT_EQ(find_program("tool", ((first / "") + ":" + (second / "")).c_str()).path, (second / "") + "/tool");
}

TEST(FindProgram, WhatCannotBeCheckedHasAReason) {
  ScratchFolder folder;
  const std::string fixed = folder.write("fixed", static_program());
  EXPECT_EQ(find_program(fixed, "").native_why, "is statically linked");
  EXPECT_FALSE(find_program(fixed, "").drops_preload);
  ASSERT_EQ(chmod(fixed.c_str(), 04755), 0);
  EXPECT_TRUE(find_program(fixed, "").drops_preload);
  EXPECT_EQ(find_program("/bin/ls", "").native_why, "");
}

TEST(FindProgram, ScriptsAreWhatTheirInterpreterIs) {
  ScratchFolder folder;
  const std::string fixed = folder.write("fixed", static_program());
  const std::string list = folder / "";
  const std::string lines[] = {
      "#!" + fixed,
      "#!/usr/bin/env fixed",
      "#!/usr/bin/env -S fixed -x",
      "#!/usr/bin/env -iS  A=1 B=2 fixed",
      "#!/usr/bin/env -S -i -u NAME fixed",
      "#!/usr/bin/env --split-string=fixed",
  };
  for (const std::string& line : lines) {
    const std::string script = folder.write("script", line + "\n");
    EXPECT_EQ(find_program(script, list.c_str()).native_why, "is statically linked") << line;
    // And scripts that such a script interprets.
    folder.write("outer", "#!" + script + "\n");
    EXPECT_EQ(find_program(folder / "outer", list.c_str()).native_why, "is statically linked") << line;
  }
}

TEST(FindProgram, AScriptWhoseProgramIsMissingIsLeftToWhoeverMissesIt) {
  ScratchFolder folder;
  EXPECT_EQ(find_program(folder.write("a", "#!/usr/bin/env nosuchprogram\n"), "/bin").native_why, "");
  EXPECT_EQ(find_program(folder.write("b", "#!/nosuchinterpreter\n"), "/bin").native_why, "");
  EXPECT_EQ(find_program(folder.write("c", "echo no bang\n"), "/bin").native_why, "");
}

}  // namespace
}  // namespace penumbra::launcher
