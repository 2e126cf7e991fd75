// Memory ruling 3: address space that changes hands takes no stale shadow along, and Penumbra's own stays.
#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "runtime/base/os_linux.h"
#include "tests/libc/in_child.h"
#include "tests/libc/poisoned_block.h"

namespace penumbra::libc::testing {
namespace {

constexpr std::size_t kBytes = 64 * kPageSize;

std::string g_said;

void keep_line(TextBuffer& line) {
  g_said.assign(line.data(), line.size());
}

class Mapping : public LibcTest {
 protected:
  void SetUp() override {
    LibcTest::SetUp();
    init(Options{}, Hooks{.say = keep_line});
    g_said.clear();
  }

  static char* map(std::size_t bytes) {
    return static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }

  // Poison as a compiled program leaves it behind: at the begin, at the end, and in the middle.
  static void leave_poison(char* p, std::size_t bytes) {
    shadow::poison(AppAddr(p), 64, shadow::ShadowTag::kStackMid);
    shadow::poison(AppAddr(p + bytes / 2), 512, shadow::ShadowTag::kUserPoison);
    shadow::poison(AppAddr(p + bytes - 8), 8, shadow::ShadowTag::kGlobalRedzone);
  }

  static bool is_clean(const char* p, std::size_t bytes) { return shadow::is_accessible(AppAddr(p), bytes); }

  static void expect_refused(int error, const char* call) {
    EXPECT_EQ(errno, error) << call;
    EXPECT_NE(g_said.find(std::string("refused ") + call + " of 0x"), std::string::npos) << g_said;
    EXPECT_EQ(g_said.find('\n'), std::string::npos);
    g_said.clear();
  }
};

TEST_F(Mapping, UnmappingClearsStaleShadow) {
  char* const p = map(kBytes);
  leave_poison(p, kBytes);
  EXPECT_EQ(munmap(p, kBytes), 0);
  EXPECT_TRUE(is_clean(p, kBytes));
}

TEST_F(Mapping, UnmappingAPartClearsThatPart) {
  char* const p = map(kBytes);
  leave_poison(p, kBytes);
  EXPECT_EQ(munmap(p + kBytes - kPageSize, kPageSize), 0);
  EXPECT_TRUE(is_clean(p + kBytes - kPageSize, kPageSize));
  EXPECT_FALSE(is_clean(p, 1));
  EXPECT_FALSE(is_clean(p + kBytes / 2, 1));
  munmap(p, kBytes);
}

TEST_F(Mapping, ANewMappingIsCleanThoughItsAddressesWereUnmappedBehindOurBack) {
  char* const p = map(kBytes);
  leave_poison(p, kBytes);
  ASSERT_EQ(os::raw_syscall(SYS_munmap, reinterpret_cast<long>(p), kBytes), 0);
  EXPECT_FALSE(is_clean(p, kBytes));
  void* const again =
      mmap(p, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(again, p);
  EXPECT_TRUE(is_clean(p, kBytes));
  munmap(p, kBytes);
}

TEST_F(Mapping, MappingOverOnesOwnMemoryIsAllowedAndCleans) {
  char* const p = map(kBytes);
  leave_poison(p, kBytes);
  EXPECT_EQ(mmap(p, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), p);
  EXPECT_TRUE(is_clean(p, kBytes));
  munmap(p, kBytes);
}

TEST_F(Mapping, AMovedMappingLeavesItsShadowBehindAndTakesNoneAlong) {
  char* const p = map(kBytes);
  char* const to = map(kBytes);
  leave_poison(p, kBytes);
  leave_poison(to, kBytes);
  EXPECT_EQ(mremap(p, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
  EXPECT_TRUE(is_clean(p, kBytes));
  EXPECT_TRUE(is_clean(to, kBytes));
  munmap(to, kBytes);
}

TEST_F(Mapping, AShrunkMappingKeepsTheShadowOfWhatStays) {
  char* const p = map(kBytes);
  leave_poison(p, kBytes);
  EXPECT_EQ(mremap(p, kBytes, kBytes / 2, 0), p);
  EXPECT_FALSE(is_clean(p, 1));
  EXPECT_TRUE(is_clean(p + kBytes / 2, kBytes / 2));
  munmap(p, kBytes / 2);
}

TEST_F(Mapping, TheBreakTakesItsShadowAlong) {
  char* const p = static_cast<char*>(sbrk(kBytes));
  ASSERT_NE(p, reinterpret_cast<char*>(-1));
  leave_poison(p, kBytes);
  EXPECT_NE(sbrk(-static_cast<std::intptr_t>(kBytes)), reinterpret_cast<void*>(-1));
  EXPECT_TRUE(is_clean(p, kBytes));
  ASSERT_EQ(brk(p + kBytes), 0);
  leave_poison(p, kBytes);
  ASSERT_EQ(brk(p), 0);
  EXPECT_TRUE(is_clean(p, kBytes));
}

TEST_F(Mapping, ADetachedSegmentIsClean) {
  const int id = shmget(IPC_PRIVATE, kBytes, IPC_CREAT | 0600);
  if (id < 0) GTEST_SKIP() << "no System V shared memory here";
  char* const p = static_cast<char*>(shmat(id, nullptr, 0));
  shmctl(id, IPC_RMID, nullptr);
  ASSERT_NE(p, reinterpret_cast<char*>(-1));
  leave_poison(p, kBytes);
  EXPECT_EQ(shmdt(p), 0);
  EXPECT_TRUE(is_clean(p, kBytes));
}

TEST_F(Mapping, AClosedModuleIsClean) {
  void* const loaded = dlopen("libz.so.1", RTLD_NOW);
  if (loaded == nullptr) GTEST_SKIP() << "no library to load";
  void* const inside = dlsym(loaded, "zlibVersion");
  const AppAddr page(round_down(reinterpret_cast<std::uintptr_t>(inside), kPageSize));
  shadow::poison(page, 64, shadow::ShadowTag::kGlobalRedzone);
  ASSERT_EQ(dlclose(loaded), 0);
  Dl_info info;
  if (dladdr(inside, &info) != 0) GTEST_SKIP() << "it stayed";
  EXPECT_TRUE(shadow::is_accessible(page, 64));
}

// Untouched shadow stays untouched: a reservation of 64 GiB and its end are two calls of the program and two of ours.
TEST_F(Mapping, AHugeMappingCostsNoMoreThanASmallOne) {
  constexpr std::size_t kHuge = std::size_t{64} << 30;
  const std::uint64_t begin = os::thread_cpu_ns();
  void* const p = mmap(nullptr, kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(p, MAP_FAILED);
  EXPECT_EQ(munmap(p, kHuge), 0);
  EXPECT_LT(os::thread_cpu_ns() - begin, 20'000'000u) << "ns";
}

TEST_F(Mapping, MappingOverPenumbrasMemoryFailsWithExistAndOneLine) {
  void* const places[] = {shadow::kLowShadowBegin.ptr<void>(), shadow::kLowShadowEnd.ptr<void>(),
                          shadow::kHighShadowBegin.ptr<void>(), shadow::shadow_of(AppAddr(&places)).ptr<void>()};
  for (void* place : places) {
    void* const at = reinterpret_cast<void*>(round_down(reinterpret_cast<std::uintptr_t>(place), kPageSize));
    EXPECT_EQ(mmap(at, kPageSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), MAP_FAILED);
    expect_refused(EEXIST, "mmap");
    EXPECT_EQ(mmap64(at, kPageSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), MAP_FAILED);
    expect_refused(EEXIST, "mmap");
    EXPECT_EQ(syscall(SYS_mmap, at, kPageSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), -1);
    expect_refused(EEXIST, "mmap");
    EXPECT_EQ(munmap(at, 1), -1);
    expect_refused(EINVAL, "munmap");
    EXPECT_EQ(syscall(SYS_munmap, at, kPageSize), -1);
    expect_refused(EINVAL, "munmap");
    EXPECT_EQ(mprotect(at, kPageSize, PROT_NONE), -1);
    expect_refused(EACCES, "mprotect");
    EXPECT_EQ(mremap(at, kPageSize, 2 * kPageSize, MREMAP_MAYMOVE), MAP_FAILED);
    expect_refused(EINVAL, "mremap");
    char* const p = map(kPageSize);
    EXPECT_EQ(mremap(p, kPageSize, kPageSize, MREMAP_MAYMOVE | MREMAP_FIXED, at), MAP_FAILED);
    expect_refused(EEXIST, "mremap");
    munmap(p, kPageSize);
  }
}

TEST_F(Mapping, AHintOverPenumbrasMemoryIsOnlyAHint) {
  void* const hint = shadow::kHighShadowBegin.ptr<void>();
  void* const p = mmap(hint, kPageSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(p, MAP_FAILED);
  EXPECT_NE(p, hint);
  munmap(p, kPageSize);
  EXPECT_EQ(mmap(hint, kPageSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), MAP_FAILED);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(g_said, "");
}

TEST_F(Mapping, AHeapBlockInOurSpanMayChangeItsProtection) {
  const os::Result mapped = os::map_anonymous(4 * kPageSize);
  ASSERT_TRUE(mapped.ok());
  char* const p = mapped.address().ptr<char>();
  // A block of two pages between redzones.
  shadow::poison(AppAddr(p), kPageSize, shadow::ShadowTag::kHeapLeftRedzone);
  shadow::poison(AppAddr(p + 3 * kPageSize), kPageSize, shadow::ShadowTag::kHeapRightRedzone);
  EXPECT_EQ(mprotect(p + kPageSize, 2 * kPageSize, PROT_READ), 0);
  EXPECT_EQ(mprotect(p + kPageSize, 2 * kPageSize, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
  EXPECT_EQ(mprotect(p, 4 * kPageSize, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(mprotect(p, 2 * kPageSize, PROT_READ), -1);
  expect_refused(EACCES, "mprotect");
  shadow::clear_stale(AppAddr(p), 4 * kPageSize);
  os::unmap(AppAddr(p), 4 * kPageSize).ignore();
}

TEST_F(Mapping, BadArgumentsAreTheKernels) {
  EXPECT_EQ(munmap(reinterpret_cast<void*>(1), kPageSize), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(munmap(shadow::kHighShadowBegin.ptr<void>(), 0), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(mmap(nullptr, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), MAP_FAILED);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(munmap(nullptr, ~std::size_t{0}), -1);
  EXPECT_EQ(g_said, "");
}

}  // namespace
}  // namespace penumbra::libc::testing
