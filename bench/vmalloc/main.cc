// test_vmalloc over one of our allocators: what modprobe test_vmalloc is to the kernel's.
//
// Exit status: 0 when no test failed (an expected failure is none), 1 when one did or the allocator could not
// be set up, 2 for parameters that make no sense.
//
// zone: hosted

#include "bench/vmalloc/cases.h"
#include "bench/vmalloc/driver.h"
#include "bench/vmalloc/mmap_subject.h"
#include "bench/vmalloc/parameters.h"
#include "bench/vmalloc/region_subject.h"
#include "bench/vmalloc/serve.h"
#include "runtime/base/fault.h"
#include "shadow/address_map.h"

#include <cstdio>
#include <iostream>
#include <memory>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

namespace penumbra::bench::vmalloc {
namespace {

int run(const Parameters& parameters, unsigned cpus, unsigned supported, const Runner& runner) {
  if (parameters.serve) {
    serve(std::cin, std::cout, parameters, cpus, supported, runner);
    return 0;
  }
  const std::vector<WorkerScore> scores = run_workers(parameters, cpus, supported, runner);
  bool failed = false;
  for (std::size_t worker = 0; worker < scores.size(); ++worker) {
    for (unsigned test = 0; test < kTestCount; ++test) {
      if ((parameters.run_test_mask & supported & (1u << test)) == 0) continue;
      std::puts(summary_line(test, scores[worker].tests[test], parameters).c_str());
      failed = failed || scores[worker].tests[test].failed != 0;
    }
    std::puts(worker_line(worker, scores[worker]).c_str());
  }
  return failed ? 1 : 0;
}

// One byte too far, and one too late: with compiled checks and lazy shadow both are found, else neither.
template <class Shadow>
int selfcheck(RegionSubject<Shadow>& subject) {
#ifdef __SANITIZE_ADDRESS__
  constexpr std::uint64_t kExpected = Shadow::kPopulates ? 2 : 0;
#else
  constexpr std::uint64_t kExpected = 0;
#endif
  constexpr std::size_t kBytes = 100;
  void* const block = subject.vmalloc(kBytes);
  if (block == nullptr) return 1;
  touch(static_cast<unsigned char*>(block) + kBytes, 1);
  subject.vfree(block, kBytes);
  touch(block, 1);
  std::printf("wrong accesses: 2, found: %lu, expected: %lu\n", faults_raised(), kExpected);
  return faults_raised() == kExpected ? 0 : 1;
}

template <class Shadow>
int run_regions(const Parameters& parameters, unsigned cpus) {
  using Subject = RegionSubject<Shadow>;
  // Checks, and the lazy policy itself, read and write the direct map; without it there is nothing to
  // measure.
  const os::Result shadow = shadow::reserve_direct_map();
  if (!shadow.ok()) {
    std::fprintf(stderr, "test_vmalloc: cannot reserve the shadow: errno %d\n", shadow.error());
    return 1;
  }
  const auto subject = std::make_unique<Subject>();
  region::Config config;
  config.retain = parameters.retain;
  const os::Result made = subject->init(config);
  if (!made.ok()) {
    std::fprintf(stderr, "test_vmalloc: cannot set the allocator up: errno %d\n", made.error());
    return 1;
  }
  if (parameters.selfcheck) return selfcheck(*subject);
  const int status = run(parameters, cpus, Subject::kTestMask,
                         [&](unsigned test, Context& context) { return run_case(*subject, test, context); });
  if (faults_raised() == 0) return status;
  std::fprintf(stderr, "test_vmalloc: checks found %lu wrong accesses\n", faults_raised());
  return 1;
}

int run_yardstick(const Parameters& parameters, unsigned cpus) {
  MmapSubject subject;
  return run(parameters, cpus, MmapSubject::kTestMask,
             [&](unsigned test, Context& context) { return run_case(subject, test, context); });
}

int run_allocator(const Parameters& parameters, unsigned cpus) {
  switch (parameters.allocator) {
    case Allocator::kOff: return run_regions<region::NoShadow>(parameters, cpus);
    case Allocator::kEarly: return run_regions<region::EarlyShadow>(parameters, cpus);
    case Allocator::kLazy: return run_regions<region::LazyShadow>(parameters, cpus);
    case Allocator::kMmap: return run_yardstick(parameters, cpus);
  }
  return 2;
}

}  // namespace
}  // namespace penumbra::bench::vmalloc

int main(int argc, char** argv) {
  using namespace penumbra::bench::vmalloc;
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  if (words.empty() || words[0] == "--help") {
    std::fputs(usage().c_str(), stdout);
    return 0;
  }
  const unsigned cpus = std::max(1u, std::thread::hardware_concurrency());
  Parameters parameters;
  const std::string error = parse_parameters(words, cpus, parameters);
  if (!error.empty()) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 2;
  }
  try {
    return run_allocator(parameters, cpus);
  } catch (const std::system_error& failure) {
    std::fprintf(stderr, "test_vmalloc: cannot start %u workers: %s\n", parameters.nr_threads, failure.what());
    return 1;
  }
}
