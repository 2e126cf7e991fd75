// Calls between kernel, stdio and buffers: what came is checked, not what there was room for; exact ends, one byte
// too many, and pointers that only the kernel may judge.
// Meson asks for 64-bit offsets, which would rename stat to stat64 and so on.
#undef _FILE_OFFSET_BITS

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "tests/libc/io_calls.h"
#include "tests/libc/poisoned_block.h"

extern "C" {
ssize_t __read_chk(int, void*, size_t, size_t);
char* __getcwd_chk(char*, size_t, size_t);
char* __realpath_chk(const char*, char*, size_t);
}

namespace penumbra::libc::testing {
namespace {

class IoEntries : public LibcTest {};

constexpr std::size_t kCounts[] = {2, 3, 8, 31, 32, 33, 64, 100, 257, 1000};

TEST_F(IoEntries, WhatFitsItsBlockExactlyIsNotReported) {
  for (const StreamCall& call : stream_calls()) {
    for (const std::size_t offset : {0, 4}) {
      for (const std::size_t count : kCounts) {
        const PoisonedBlock block(count * call.char_bytes, offset);
        call.call(block.begin(), count);
        expect_no_fault(call.function, std::to_string(count) + " at " + std::to_string(offset));
      }
    }
  }
}

TEST_F(IoEntries, OneCharacterMoreThanTheBlockHasIsReportedAtItsEnd) {
  for (const StreamCall& call : stream_calls()) {
    for (const std::size_t count : kCounts) {
      const PoisonedBlock block(count * call.char_bytes, 0);
      call.call(block.begin(), count + 1);
      expect_bad_access(call.function, call.is_write, block.end(), std::to_string(count));
    }
  }
}

TEST_F(IoEntries, AStructureThatFitsIsNotReported) {
  for (const StructureCall& call : structure_calls()) {
    const PoisonedBlock block(call.bytes, 0);
    call.call(block.begin());
    expect_no_fault(call.function, "it fits");
  }
}

TEST_F(IoEntries, AStructureThatIsOneByteTooLongIsReported) {
  for (const StructureCall& call : structure_calls()) {
    const PoisonedBlock block(call.bytes - 1, 0);
    call.call(block.begin());
    expect_bad_access(call.function, call.is_write, block.end(), "one byte too long");
  }
}

TEST_F(IoEntries, PathsAreReadToTheirTerminator) {
  const PoisonedBlock block(8, 0);
  memcpy(block.begin(), "/tmp/xxx", 8);
  struct stat status;
  EXPECT_EQ(stat(block.begin(), &status), -1);
  expect_bad_access("stat", false, block.end(), "a path without terminator");
  char out[64];
  EXPECT_EQ(readlink(block.begin(), out, sizeof out), -1);
  expect_bad_access("readlink", false, block.end(), "a path without terminator");
}

TEST_F(IoEntries, WrittenPathsAreCheckedWithTheirTerminator) {
  ASSERT_EQ(chdir("/usr/lib"), 0);
  for (char* (*call)(char*) :
       {+[](char* p) { return getcwd(p, PATH_MAX); }, +[](char* p) { return __getcwd_chk(p, PATH_MAX, PATH_MAX); },
        +[](char* p) { return realpath(".", p); }, +[](char* p) { return __realpath_chk(".", p, PATH_MAX); }}) {
    {
      const PoisonedBlock block(9, 0);
      EXPECT_STREQ(call(block.begin()), "/usr/lib");
      ASSERT_EQ(FaultRecord::count(), 0u);
    }
    const PoisonedBlock block(8, 0);
    EXPECT_EQ(call(block.begin()), block.begin());
    ASSERT_EQ(FaultRecord::count(), 1u);
    EXPECT_EQ(FaultRecord::at(0).bad.value, reinterpret_cast<std::uintptr_t>(block.end()));
    FaultRecord::clear();
  }
  EXPECT_EQ(realpath(nullptr, nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  free(getcwd(nullptr, 0));
}

TEST_F(IoEntries, PointersThatOnlyTheKernelMayJudgeAreLeftToIt) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  void* const nowhere = reinterpret_cast<void*>(0x10);
  void* const beyond = reinterpret_cast<void*>(~std::uintptr_t{0} - 100);
  for (void* p : {static_cast<void*>(nullptr), nowhere, beyond}) {
    EXPECT_EQ(write(fds[1], p, 8), -1);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(stat(static_cast<const char*>(p), static_cast<struct stat*>(p)), -1);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(writev(fds[1], static_cast<const iovec*>(p), 1), -1);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(sendmsg(fds[1], static_cast<const msghdr*>(p), 0), -1);
  }
  EXPECT_EQ(write(fds[1], "x", 1), 1);
  EXPECT_EQ(read(fds[0], nowhere, 1), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(read(-1, nullptr, 0), -1);
  expect_no_fault("a system call", "a pointer that is none");
  close(fds[0]);
  close(fds[1]);
}

TEST_F(IoEntries, MemoryThatTheKernelCannotReachIsReportedWhenItSaysSo) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  ASSERT_EQ(write(fds[1], "x", 1), 1);
  void* const page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  shadow::poison(AppAddr(page), 4096, shadow::ShadowTag::kRegionFreed);
  EXPECT_EQ(read(fds[0], page, 16), -1);
  EXPECT_EQ(errno, EFAULT);
  expect_bad_access("read", true, page, "a freed region");
  shadow::clear_stale(AppAddr(page), 4096);
  munmap(page, 4096);
  close(fds[0]);
  close(fds[1]);
}

TEST_F(IoEntries, AReceivedAddressIsWrittenUpToItsRoom) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  const PoisonedBlock block(2, 0);
  socklen_t bytes = 1;  // less room than the name has, and told so by the kernel
  EXPECT_EQ(getsockname(fds[0], reinterpret_cast<sockaddr*>(block.begin()), &bytes), 0);
  EXPECT_EQ(bytes, 2u);
  expect_no_fault("getsockname", "room for one byte");
  const PoisonedBlock small(1, 0);
  bytes = 16;
  EXPECT_EQ(getsockname(fds[0], reinterpret_cast<sockaddr*>(small.begin()), &bytes), 0);
  expect_bad_access("getsockname", true, small.end(), "a name of two bytes");
  close(fds[0]);
  close(fds[1]);
}

TEST_F(IoEntries, LinesGrowInTheProgramsBuffer) {
  char content[] = "one line\nand another\n";
  FILE* const stream = fmemopen(content, sizeof content - 1, "r");
  char* line = nullptr;
  std::size_t room = 0;
  EXPECT_EQ(getline(&line, &room, stream), 9);
  EXPECT_EQ(getdelim(&line, &room, '\n', stream), 12);
  expect_no_fault("getline", "a buffer of its own");
  free(line);
  fclose(stream);
}

TEST_F(IoEntries, ErrnoIsTheCallsOwn) {
  errno = 0;
  char p[4];
  EXPECT_EQ(read(-1, p, sizeof p), -1);
  EXPECT_EQ(errno, EBADF);
  errno = 77;
  EXPECT_EQ(read(STDIN_FILENO, p, 0), 0);
  EXPECT_EQ(errno, 77);
}

using IoEntriesDeathTest = IoEntries;

TEST_F(IoEntriesDeathTest, TheFortifyCheckItselfStays) {
  char small[8];
  EXPECT_DEATH(__read_chk(0, small, 16, sizeof small), "buffer overflow detected");
}

}  // namespace
}  // namespace penumbra::libc::testing
