// What test_vmalloc is told: the kernel module's parameters and the modes of its test_vmalloc.sh, plus the
// allocator.
//
//     test_vmalloc [allocator=off|early|lazy|mmap] [performance|smoke|stress] [key=value]...
//
// A mode sets what the kernel's script passes for it; keys behind it override. As in the script, a value that
// is not above 0 and a key that the module does not have are errors.
//
// zone: hosted
#pragma once

#include "bench/vmalloc/suite.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace penumbra::bench::vmalloc {

enum class Allocator : std::uint8_t { kOff, kEarly, kLazy, kMmap };

struct Parameters {
  Allocator allocator = Allocator::kLazy;
  unsigned nr_threads = 1;  // 1..65535
  bool sequential_test_order = false;
  unsigned test_repeat_count = 1;
  unsigned test_loop_count = 1'000'000;
  unsigned nr_pages = 1;
  bool use_huge = false;
  unsigned run_test_mask = kAllTests;
  unsigned nr_pcpu_objects = 35'000;
  bool serve = false;        // take runs from stdin instead (serve.h)
  bool selfcheck = false;    // do two wrong accesses instead, and see that checks find them where there are checks
  std::uint64_t retain = 0;  // bytes that purged areas may keep; the ratio goals are measured without
};

// Applies the words in order. Empty when all were understood, else one line that says which was not and why.
// `cpus` is what stress takes as nr_threads.
std::string parse_parameters(std::span<const std::string_view> words, unsigned cpus, Parameters& parameters);

// The modes and keys, for people.
std::string usage();

}  // namespace penumbra::bench::vmalloc
