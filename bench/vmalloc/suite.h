// The thirteen tests of the kernel's lib/test_vmalloc.c by name, bit and what is expected of them.
//
// The bit of a test in run_test_mask is its index here; the order is the kernel's and is what
// sequential_test_order=1 runs. An xfail test may fail: it is then counted as xfailed, not as failed.
//
// zone: hosted
#pragma once

#include <array>
#include <cstddef>

namespace penumbra::bench::vmalloc {

enum TestIndex : unsigned {
  kFixSize,
  kFullFit,
  kLongBusyList,
  kRandomSize,
  kFixAlign,
  kRandomSizeAlign,
  kAlignShift,
  kPcpu,
  kKvfreeRcu1Arg,
  kKvfreeRcu2Arg,
  kVmMapRam,
  kNoBlock,
  kVrealloc,
  kTestCount,
};

struct TestInfo {
  const char* name;
  bool xfail;
};

inline constexpr std::array<TestInfo, kTestCount> kTests{{
    {"fix_size_alloc_test", false},
    {"full_fit_alloc_test", false},
    {"long_busy_list_alloc_test", false},
    {"random_size_alloc_test", false},
    {"fix_align_alloc_test", false},
    {"random_size_align_alloc_test", false},
    {"align_shift_alloc_test", true},
    {"pcpu_alloc_test", false},
    {"kvfree_rcu_1_arg_vmalloc_test", false},
    {"kvfree_rcu_2_arg_vmalloc_test", false},
    {"vm_map_ram_test", false},
    {"no_block_alloc_test", true},
    {"vrealloc_test", false},
}};

inline constexpr unsigned kAllTests = (1u << kTestCount) - 1;
static_assert(kAllTests == 8191, "the default of run_test_mask");

}  // namespace penumbra::bench::vmalloc
