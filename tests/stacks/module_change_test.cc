// Rules of a library that was closed must not be used for the one that took its place.
//
// Two libraries hold the same function with frames of different size. One is loaded, walked through and closed, then
// the other, until the loader puts it where the first was.
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/base/config.h"
#include "runtime/stacks/code_modules.h"
#include "runtime/stacks/depot.h"
#include "runtime/stacks/stacks.h"

#include <gtest/gtest.h>

namespace {

using penumbra::kMaxStackFrames;
using namespace penumbra::stacks;

using Stack = std::vector<std::uintptr_t>;

Stack g_unwound;
Stack g_recorded;
Stack g_reference;

__attribute__((noinline)) void take_all(const penumbra::CodeContext& here) {
  g_recorded.resize(kMaxStackFrames);
  g_recorded.resize(depot_get(record(here, 30), g_recorded.data(), kMaxStackFrames));
}

void callee_that_records() {
  take_all(PENUMBRA_CALLER());
  void* reference[kMaxStackFrames];
  const int count = backtrace(reference, kMaxStackFrames);
  g_reference.clear();
  for (int i = 1; i < count; ++i) g_reference.push_back(reinterpret_cast<std::uintptr_t>(reference[i]));
}

void callee_that_unwinds() {
  g_unwound.resize(kMaxStackFrames);
  g_unwound.resize(unwind(PENUMBRA_CALLER(), g_unwound.data(), kMaxStackFrames));
  void* reference[kMaxStackFrames];
  const int count = backtrace(reference, kMaxStackFrames);
  g_reference.clear();
  for (int i = 1; i < count; ++i) g_reference.push_back(reinterpret_cast<std::uintptr_t>(reference[i]));
}

class Library {
 public:
  explicit Library(const char* path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
    call_through_ = reinterpret_cast<CallThrough>(dlsym(handle_, "call_through"));
  }
  ~Library() { dlclose(handle_); }

  void call(void (*callee)()) const { call_through_(callee); }
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(call_through_); }

 private:
  using CallThrough = void (*)(void (*)());
  void* handle_;
  CallThrough call_through_;
};

// Some pc in the module whose file name begins so.
std::uintptr_t code_of(const char* name) {
  struct Search {
    const char* name;
    std::uintptr_t pc;
  } search{name, 0};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* cookie) {
        auto* wanted = static_cast<Search*>(cookie);
        const char* slash = std::strrchr(info->dlpi_name, '/');
        if (slash == nullptr || std::strncmp(slash + 1, wanted->name, std::strlen(wanted->name)) != 0) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& segment = info->dlpi_phdr[i];
          if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0) {
            wanted->pc = info->dlpi_addr + segment.p_vaddr + 64;
          }
        }
        return 1;
      },
      &search);
  return search.pc;
}

TEST(ModuleChange, TheLoaderIsKnownByItsCode) {
  ASSERT_TRUE(is_loader_known());
  EXPECT_TRUE(is_loader_code(code_of("ld-linux")));
  EXPECT_FALSE(is_loader_code(code_of("libc.so")));
  EXPECT_FALSE(is_loader_code(reinterpret_cast<std::uintptr_t>(&take_all)));
}

// The loader frees what it kept of a closed library through our free(), which records; here malloc is the libc's, so
// that record is made by hand. module_churn.c does it in earnest.
void record_as_the_loader_frees() {
  penumbra::CodeContext context = PENUMBRA_CALLER();
  context.pc = code_of("ld-linux");
  record(context, 1);
}

// Runs `use` in one library and in the other at the same place, at least a few times.
template <class Use>
void alternate(Use use, void (*after_close)()) {
  int same_place = 0;
  for (int round = 0; round < 20; ++round) {
    std::uintptr_t first = 0;
    {
      const Library library(PENUMBRA_SWAPPED_SMALL);
      first = library.address();
      use(library);
    }
    after_close();
    {
      const Library library(PENUMBRA_SWAPPED_LARGE);
      same_place += library.address() == first;
      use(library);
    }
    after_close();
  }
  EXPECT_GT(same_place, 5);
}

TEST(ModuleChange, UnwindUsesTheRulesOfWhatIsLoadedNow) {
  alternate(
      [](const Library& library) {
        library.call(callee_that_unwinds);
        ASSERT_EQ(g_unwound, g_reference);
        library.call(callee_that_unwinds);
        ASSERT_EQ(g_unwound, g_reference);
      },
      [] {});
}

TEST(ModuleChange, RecordUsesTheRulesOfWhatIsLoadedNow) {
  alternate(
      [](const Library& library) {
        for (int i = 0; i < 3; ++i) {
          library.call(callee_that_records);
          Stack expected = g_reference;
          if (expected.size() > 30) expected.resize(30);
          ASSERT_EQ(g_recorded, expected);
        }
      },
      record_as_the_loader_frees);
}

TEST(ModuleChange, RecordIsRightWhileOtherThreadsLoadAndClose) {
  std::atomic<bool> stop{false};
  std::thread loader([&stop] {
    while (!stop.load()) {
      const Library library(PENUMBRA_SWAPPED_SMALL);
      library.call([] {});
      record_as_the_loader_frees();
    }
  });
  for (int i = 0; i < 300; ++i) {
    const Library library(PENUMBRA_SWAPPED_LARGE);
    library.call(callee_that_records);
    Stack expected = g_reference;
    if (expected.size() > 30) expected.resize(30);
    ASSERT_EQ(g_recorded, expected);
  }
  stop.store(true);
  loader.join();
  record_as_the_loader_frees();  // the last one's rules; the next test may load another in its place
}

TEST(ModuleChange, ChangesAreCounted) {
  { Library(PENUMBRA_SWAPPED_SMALL).call(callee_that_records); }
  const std::uint32_t before = module_epoch();
  revalidate_modules();
  EXPECT_NE(module_epoch(), before);
  const std::uint32_t after = module_epoch();
  revalidate_modules();
  EXPECT_EQ(module_epoch(), after);
}

}  // namespace
