// Runs the chosen tests on one thread a worker and keeps the score, as the kernel module does.
//
// All workers wait at a barrier and start together. Each goes through the tests in its own order (shuffled
// unless sequential), repeats each, and times the repeats of a test as one piece: `avg` is the average of a
// repeat.
//
// zone: hosted
#pragma once

#include "bench/vmalloc/context.h"
#include "bench/vmalloc/suite.h"

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace penumbra::bench::vmalloc {

// Runs one test once; true when it passed.
using Runner = std::function<bool(unsigned test, Context& context)>;

struct TestScore {
  unsigned passed = 0;
  unsigned failed = 0;
  unsigned xfailed = 0;
  std::uint64_t ns = 0;  // of one repeat, on average
};

struct WorkerScore {
  std::array<TestScore, kTestCount> tests{};
  std::uint64_t cycles = 0;  // of the time stamp counter, over all tests
};

// `supported` is the mask of tests the runner knows; others are not run. Tests whose bit is set in
// parameters.run_test_mask and in `supported` run test_repeat_count times on each of nr_threads workers.
// Throws std::system_error when a thread cannot be had.
std::vector<WorkerScore> run_workers(const Parameters& parameters, unsigned cpus, unsigned supported,
                                     const Runner& runner);

// The kernel's lines, in its form.
std::string summary_line(unsigned test, const TestScore& score, const Parameters& parameters);
std::string worker_line(std::size_t worker, const WorkerScore& score);

// A permutation of 0..count-1: Fisher-Yates with the partner strictly below, as the kernel draws it.
std::vector<unsigned> shuffled_order(unsigned count, Random& random);

}  // namespace penumbra::bench::vmalloc
