// What kind of program a file is, told from files written here byte by byte and from programs of the system.
#include "runtime/process/program_file.h"

#include <gtest/gtest.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "tests/support/scratch_folder.h"

namespace penumbra::process {
namespace {

using tests::ScratchFolder;

ProgramFile inspect(const std::string& path) {
  ProgramFile program;
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_GE(fd, 0) << path;
  inspect_program(fd, program);
  close(fd);
  return program;
}

std::string elf_header(unsigned char elf_class, Elf64_Half machine) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = elf_class;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_EXEC;
  header.e_machine = machine;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

TEST(ProgramFile, ASystemProgramIsDynamic) {
  const ProgramFile program = inspect("/bin/ls");
  EXPECT_EQ(program.kind, ProgramKind::kDynamic);
  EXPECT_FALSE(program.changes_id);
  EXPECT_FALSE(program.drops_preload());
}

TEST(ProgramFile, AnotherMachineOrThirtyTwoBitsAreForeign) {
  ScratchFolder folder;
  // A 32-bit header has its own layout, but class and magic stand where they always do.
  EXPECT_EQ(inspect(folder.write("x86", elf_header(ELFCLASS32, EM_386))).kind, ProgramKind::kForeign);
  EXPECT_EQ(inspect(folder.write("arm", elf_header(ELFCLASS64, EM_AARCH64))).kind, ProgramKind::kForeign);
  EXPECT_TRUE(inspect(folder / "x86").drops_preload());
  EXPECT_EQ(inspect(folder.write("short", elf_header(ELFCLASS32, EM_386).substr(0, sizeof(Elf32_Ehdr)))).kind,
            ProgramKind::kForeign);
}

TEST(ProgramFile, WithoutALoaderAProgramIsStaticAndKeepsThePreloadForItsChildren) {
  ScratchFolder folder;
  const ProgramFile program = inspect(folder.write("static", elf_header(ELFCLASS64, EM_X86_64)));
  EXPECT_EQ(program.kind, ProgramKind::kStatic);
  EXPECT_FALSE(program.drops_preload());
}

TEST(ProgramFile, DamagedFilesHaveNoKindAndDoNoHarm) {
  ScratchFolder folder;
  std::string far = elf_header(ELFCLASS64, EM_X86_64);
  reinterpret_cast<Elf64_Ehdr*>(far.data())->e_phnum = 3;  // headers that the file does not hold
  EXPECT_EQ(inspect(folder.write("far", far)).kind, ProgramKind::kUnknown);
  reinterpret_cast<Elf64_Ehdr*>(far.data())->e_phnum = 0xffff;
  EXPECT_EQ(inspect(folder.write("many", far)).kind, ProgramKind::kUnknown);
  EXPECT_EQ(inspect(folder.write("empty", "")).kind, ProgramKind::kOther);
  EXPECT_EQ(inspect(folder.write("cut", elf_header(ELFCLASS64, EM_X86_64).substr(0, 20))).kind, ProgramKind::kOther);
}

TEST(ProgramFile, AProgramWhoseDynamicSectionLiesIsStillDynamic) {
  ScratchFolder folder;
  std::string bytes = elf_header(ELFCLASS64, EM_X86_64);
  reinterpret_cast<Elf64_Ehdr*>(bytes.data())->e_phnum = 3;
  Elf64_Phdr headers[3]{};
  headers[0] = {.p_type = PT_INTERP,
                .p_flags = PF_R,
                .p_offset = 0,
                .p_vaddr = 0,
                .p_paddr = 0,
                .p_filesz = 1,
                .p_memsz = 1,
                .p_align = 1};
  headers[1] = {.p_type = PT_LOAD,
                .p_flags = PF_R,
                .p_offset = 0,
                .p_vaddr = 0,
                .p_paddr = 0,
                .p_filesz = 4096,
                .p_memsz = 4096,
                .p_align = 1};
  headers[2] = {.p_type = PT_DYNAMIC,
                .p_flags = PF_R,
                .p_offset = 1024,
                .p_vaddr = 1024,
                .p_paddr = 0,
                .p_filesz = 1024,
                .p_memsz = 1024,
                .p_align = 8};
  bytes.append(reinterpret_cast<const char*>(headers), sizeof headers);
  bytes.resize(1024);
  const Elf64_Dyn entries[] = {{DT_NEEDED, {~0ull}},
                               {DT_STRTAB, {~0ull - 8}},
                               {DT_STRSZ, {~0ull}},
                               {DT_SYMTAB, {~0ull - 100}},
                               {DT_GNU_HASH, {2048}}};
  bytes.append(reinterpret_cast<const char*>(entries), sizeof entries);
  bytes.resize(2048);
  bytes.resize(4096, '\xff');  // a hash table of nonsense
  EXPECT_EQ(inspect(folder.write("liar", bytes)).kind, ProgramKind::kDynamic);
}

TEST(ProgramFile, SetUserIdAndSetGroupIdAreSeen) {
  ScratchFolder folder;
  const std::string path = folder.write("program", elf_header(ELFCLASS64, EM_X86_64));
  for (const mode_t mode : {04755, 02755}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_TRUE(inspect(path).changes_id) << std::oct << mode;
    EXPECT_TRUE(inspect(path).drops_preload());
  }
  // Set-group-ID without group execute permission meant mandatory locking, never a change of identity.
  ASSERT_EQ(chmod(path.c_str(), 02644), 0);
  EXPECT_FALSE(inspect(path).changes_id);
}

TEST(ProgramFile, TheBangLineIsReadAsTheKernelReadsIt) {
  ScratchFolder folder;
  struct {
    const char* text;
    const char* interpreter;
    const char* argument;
  } const cases[] = {
      {"#!/bin/sh\necho\n", "/bin/sh", ""},
      {"#! \t/bin/sh  -e -u \t\necho\n", "/bin/sh", "-e -u"},
      {"#!/usr/bin/env -S perl -w", "/usr/bin/env", "-S perl -w"},
  };
  for (const auto& each : cases) {
    const ProgramFile program = inspect(folder.write("script", each.text));
    EXPECT_EQ(program.kind, ProgramKind::kScript) << each.text;
    EXPECT_STREQ(program.interpreter, each.interpreter);
    EXPECT_STREQ(program.argument, each.argument);
  }
  EXPECT_EQ(inspect(folder.write("script", "#!\n")).kind, ProgramKind::kOther);
  // Longer than the kernel looks: cut there, as in the kernel, and nothing written past the end.
  const ProgramFile cut = inspect(folder.write("script", "#!/" + std::string(600, 'x')));
  EXPECT_EQ(std::strlen(cut.interpreter), kScriptLineBytes - 1 - 2);
}

TEST(ProgramFile, ScriptsAreFollowedToTheProgramThatRuns) {
  ScratchFolder folder;
  const std::string inner = folder.write("inner", "#!/bin/ls\n");
  const std::string outer = folder.write("outer", "#!" + inner + "\n");
  ProgramFile program;
  EXPECT_TRUE(follow_scripts(AT_FDCWD, outer.c_str(), program));
  EXPECT_EQ(program.kind, ProgramKind::kDynamic);
  // A circle ends, as it does in the kernel.
  const std::string circle = folder / "circle";
  folder.write("circle", "#!" + circle + "\n");
  EXPECT_FALSE(follow_scripts(AT_FDCWD, circle.c_str(), program));
  EXPECT_FALSE(follow_scripts(AT_FDCWD, (folder / "absent").c_str(), program));
  EXPECT_EQ(program.kind, ProgramKind::kUnknown);
}

TEST(ProgramFile, RelativePathsStartAtTheFolderGiven) {
  ScratchFolder folder;
  folder.write("program", elf_header(ELFCLASS64, EM_X86_64));
  const int dirfd = open((folder / ".").c_str(), O_PATH | O_DIRECTORY);
  ProgramFile program;
  EXPECT_TRUE(follow_scripts(dirfd, "program", program));
  EXPECT_EQ(program.kind, ProgramKind::kStatic);
  close(dirfd);
}

TEST(ProgramFile, AFifoIsNotWaitedFor) {
  ScratchFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0755), 0);
  ProgramFile program;
  EXPECT_TRUE(follow_scripts(AT_FDCWD, (folder / "fifo").c_str(), program));
  EXPECT_EQ(program.kind, ProgramKind::kUnknown);
}

TEST(ProgramFile, ThisTestWasBuiltWithoutASanitizer) {
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_EQ(sanitizer_of_this_process(), nullptr);
#else
  EXPECT_NE(sanitizer_of_this_process(), nullptr);
#endif
}

}  // namespace
}  // namespace penumbra::process
