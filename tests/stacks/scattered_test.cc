// A program with gaps between its segments (node is one). Of such a module the loader tells only the segment that holds
// what it was asked about, so tables are looked for apart from code.
#include <gtest/gtest.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <cstdint>
#include <vector>

#include "runtime/stacks/code_modules.h"
#include "runtime/stacks/depot.h"
#include "runtime/stacks/stacks.h"
#include "runtime/stacks/unwind.h"

namespace penumbra::stacks {
namespace {

struct Stacks {
  std::vector<std::uintptr_t> unwound;
  std::vector<std::uintptr_t> recorded;
  std::vector<std::uintptr_t> reference;
};

__attribute__((noinline)) void take_all(Stacks& stacks) {
  stacks.unwound.resize(kMaxStackFrames);
  stacks.unwound.resize(unwind(PENUMBRA_CALLER(), stacks.unwound.data(), kMaxStackFrames));
  stacks.recorded.resize(kMaxStackFrames);
  stacks.recorded.resize(depot_get(record(PENUMBRA_CALLER(), 30), stacks.recorded.data(), kMaxStackFrames));
  void* reference[kMaxStackFrames];
  const int count = backtrace(reference, kMaxStackFrames);
  for (int i = 1; i < count; ++i) stacks.reference.push_back(reinterpret_cast<std::uintptr_t>(reference[i]));
}

// A caller that uses rbp as any other register.
__attribute__((noinline, optimize("omit-frame-pointer"))) void call_once(Stacks& stacks) {
  take_all(stacks);
  asm volatile("xor %%ebp, %%ebp" ::: "rbp", "memory");
}

TEST(Scattered, AProgramWithGapsBetweenItsSegmentsIsUnwoundByItsTables) {
  const auto pc = reinterpret_cast<std::uintptr_t>(&take_all);
  dl_find_object found;
  ASSERT_EQ(_dl_find_object(reinterpret_cast<void*>(pc), &found), 0);
  ASSERT_GE(found.dlfo_eh_frame, found.dlfo_map_end) << "has no gap";
  CodeModule module;
  EXPECT_TRUE(find_module(pc, module));
  EXPECT_TRUE(module.is_known);
  Stacks stacks;
  call_once(stacks);
  ASSERT_GT(stacks.reference.size(), 5u);
  EXPECT_EQ(stacks.unwound, stacks.reference);
  EXPECT_EQ(stacks.recorded, stacks.reference);
}

}  // namespace
}  // namespace penumbra::stacks
