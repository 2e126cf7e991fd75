// The bench test_vmalloc itself: what it is told, how it keeps the score and what it prints, over an
// allocator of this file that counts what the bodies ask for. No figure is tested, only that the tests are
// the kernel's.

#include "bench/vmalloc/cases.h"
#include "bench/vmalloc/driver.h"
#include "bench/vmalloc/mmap_subject.h"
#include "bench/vmalloc/parameters.h"
#include "bench/vmalloc/serve.h"

#include <gtest/gtest.h>

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace penumbra::bench::vmalloc {
namespace {

std::string parse(std::vector<std::string_view> words, Parameters& parameters) {
  return parse_parameters(words, 4, parameters);
}

TEST(TestVmallocParameters, DefaultsAreTheKernelModulesWithEveryTest) {
  Parameters p;
  EXPECT_EQ(parse({}, p), "");
  EXPECT_EQ(p.test_loop_count, 1'000'000u);
  EXPECT_EQ(p.test_repeat_count, 1u);
  EXPECT_EQ(p.nr_threads, 1u);
  EXPECT_EQ(p.nr_pages, 1u);
  EXPECT_EQ(p.run_test_mask, 8191u);
  EXPECT_EQ(p.nr_pcpu_objects, 35'000u);
  EXPECT_FALSE(p.sequential_test_order);
  EXPECT_FALSE(p.use_huge);
}

TEST(TestVmallocParameters, ModesSetWhatTheScriptPasses) {
  Parameters performance;
  EXPECT_EQ(parse({"performance"}, performance), "");
  EXPECT_TRUE(performance.sequential_test_order);
  EXPECT_EQ(performance.test_repeat_count, 3u);
  EXPECT_EQ(performance.nr_threads, 1u);
  EXPECT_EQ(performance.test_loop_count, 1'000'000u);

  Parameters smoke;
  EXPECT_EQ(parse({"smoke"}, smoke), "");
  EXPECT_EQ(smoke.test_loop_count, 10'000u);
  EXPECT_EQ(smoke.test_repeat_count, 10u);

  Parameters stress;
  EXPECT_EQ(parse({"stress"}, stress), "");
  EXPECT_EQ(stress.nr_threads, 4u);
  EXPECT_EQ(stress.test_repeat_count, 20u);
  EXPECT_FALSE(stress.sequential_test_order);
}

TEST(TestVmallocParameters, KeysBehindAModeOverrideIt) {
  Parameters p;
  EXPECT_EQ(parse({"stress", "nr_threads=2", "run_test_mask=0x1", "nr_pages=8", "allocator=early"}, p), "");
  EXPECT_EQ(p.nr_threads, 2u);
  EXPECT_EQ(p.run_test_mask, 1u);
  EXPECT_EQ(p.nr_pages, 8u);
  EXPECT_EQ(p.allocator, Allocator::kEarly);
}

TEST(TestVmallocParameters, ZeroAndUnknownAndUnreadableAreRefusedInOneLine) {
  for (const std::string_view word :
       {"nr_pages=0", "test_loop_count=-1", "test_loop_count=", "nr_pages=3x", "nr_page=3", "use_huge=2", "turbo",
        "allocator=fast", "test_loop_count=4294967296"}) {
    Parameters p;
    const std::string error = parse({word}, p);
    EXPECT_NE(error.find(word), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(TestVmallocParameters, ThreadsAreClampedToAnUnsignedShort) {
  Parameters p;
  EXPECT_EQ(parse({"nr_threads=100000"}, p), "");
  EXPECT_EQ(p.nr_threads, 65535u);
}

TEST(TestVmallocOutput, LinesHaveTheKernelsForm) {
  Parameters p;
  p.test_repeat_count = 3;
  TestScore score;
  score.passed = 3;
  score.ns = 901'177'999;
  EXPECT_EQ(summary_line(kFixSize, score, p),
            "Summary: fix_size_alloc_test passed: 3 failed: 0 xfailed: 0 repeat: 3 loops: 1000000 avg: "
            "901177 usec");
  WorkerScore worker;
  worker.cycles = 235852523452;
  EXPECT_EQ(worker_line(1, worker), "All test took worker1=235852523452 cycles");
}

TEST(TestVmallocDriver, ShuffleIsAPermutationThatLeavesNothingInPlace) {
  // A partner strictly below (Sattolo's form of Fisher-Yates) makes one cycle through all positions.
  Random random(7);
  std::set<std::vector<unsigned>> seen;
  for (int round = 0; round < 20; ++round) {
    const std::vector<unsigned> order = shuffled_order(kTestCount, random);
    EXPECT_EQ(std::set<unsigned>(order.begin(), order.end()).size(), kTestCount);
    for (unsigned i = 0; i < kTestCount; ++i) EXPECT_NE(order[i], i);
    seen.insert(order);
  }
  EXPECT_GT(seen.size(), 15u);
}

TEST(TestVmallocDriver, EveryWorkerStartsOnlyWhenAllAreThere) {
  Parameters p;
  p.nr_threads = 3;
  p.run_test_mask = 1;
  std::atomic<unsigned> inside{0};
  // Each worker waits in its first test for all others: this ends only if all run at once.
  const auto scores = run_workers(p, 2, kAllTests, [&](unsigned, Context&) {
    ++inside;
    while (inside.load() < 3) std::this_thread::yield();
    return true;
  });
  ASSERT_EQ(scores.size(), 3u);
  for (const WorkerScore& score : scores) {
    EXPECT_EQ(score.tests[kFixSize].passed, 1u);
    EXPECT_GT(score.cycles, 0u);
  }
}

TEST(TestVmallocDriver, SequentialOrderIsTheKernelsAndMaskAndSupportChoose) {
  Parameters p;
  p.sequential_test_order = true;
  p.run_test_mask = 0b1011;
  std::vector<unsigned> order;
  run_workers(p, 2, 0b1110, [&](unsigned test, Context&) {
    order.push_back(test);
    return true;
  });
  EXPECT_EQ(order, (std::vector<unsigned>{1, 3}));
}

TEST(TestVmallocDriver, ExpectedFailuresAreCountedApart) {
  Parameters p;
  p.test_repeat_count = 2;
  p.run_test_mask = 1u << kAlignShift | 1u << kFixSize;
  const auto scores = run_workers(p, 2, kAllTests, [](unsigned, Context&) { return false; });
  EXPECT_EQ(scores[0].tests[kAlignShift].xfailed, 2u);
  EXPECT_EQ(scores[0].tests[kAlignShift].failed, 0u);
  EXPECT_EQ(scores[0].tests[kFixSize].failed, 2u);
  EXPECT_EQ(scores[0].tests[kFixSize].xfailed, 0u);
}

// Serves blocks from aligned_alloc, remembers what was asked, and can be told to fail.
class CountingSubject {
 public:
  using Page = int;
  static constexpr unsigned kTestMask = kAllTests;

  void* vmalloc(std::size_t bytes) { return take(bytes, kPageSize, "vmalloc"); }

  void* vmalloc_huge(std::size_t bytes) { return take(bytes, kPageSize, "vmalloc_huge"); }

  void* vmalloc_aligned(std::size_t bytes, std::size_t alignment) {
    return take(bytes, alignment, "vmalloc_aligned");
  }

  void* vzalloc_aligned(std::size_t bytes, std::size_t alignment) {
    return take(bytes, alignment, "vzalloc_aligned");
  }

  void* alloc_percpu(std::size_t bytes, std::size_t alignment) { return take(bytes, alignment, "alloc_percpu"); }

  void free_percpu(void* block) { give_back(block); }

  void* vrealloc(void* block, std::size_t bytes) {
    void* const moved = take(bytes, kPageSize, "vrealloc");
    if (moved == nullptr) return nullptr;
    std::memcpy(moved, block, std::min(bytes, live_.at(block)));
    give_back(block);
    return moved;
  }

  void vfree(void* block, std::size_t bytes) {
    if (block == nullptr) return;
    EXPECT_EQ(live_.at(block), bytes);
    give_back(block);
  }

  bool kvfree_rcu(void* object) {
    waiting_.push_back(object);
    return true;
  }

  bool kvfree_rcu(void* object, void* head) {
    EXPECT_GE(head, object);
    return kvfree_rcu(object);
  }

  void rcu_barrier() {
    for (void* const object : waiting_) give_back(object);
    waiting_.clear();
  }

  Page* alloc_page() { return static_cast<Page*>(take(kPageSize, kPageSize, "alloc_page")); }

  void free_page(Page* page) { give_back(page); }

  void* vm_map_ram(Page** pages, unsigned count) {
    EXPECT_NE(pages[count - 1], nullptr);
    return take(count * kPageSize, kPageSize, "vm_map_ram");
  }

  void vm_unmap_ram(void* block, unsigned count) {
    EXPECT_EQ(live_.at(block), count * kPageSize);
    give_back(block);
  }

  struct Asked {
    unsigned times = 0;
    std::size_t smallest = ~std::size_t{0};
    std::size_t largest = 0;
    std::size_t largest_alignment = 0;
  };

  std::map<std::string, Asked> asked;

  std::size_t live() const { return live_.size(); }

  std::size_t most_live = 0;
  unsigned fail_after = ~0u;  // the so-manyth request and all behind it

 private:
  void* take(std::size_t bytes, std::size_t alignment, const char* verb) {
    Asked& a = asked[verb];
    ++a.times;
    a.smallest = std::min(a.smallest, bytes);
    a.largest = std::max(a.largest, bytes);
    a.largest_alignment = std::max(a.largest_alignment, alignment);
    if (++requests_ > fail_after || alignment > std::size_t{1} << 30) return nullptr;
    void* block = nullptr;
    if (posix_memalign(&block, std::max<std::size_t>(alignment, 16), bytes) != 0) return nullptr;
    live_[block] = bytes;
    most_live = std::max(most_live, live_.size());
    return block;
  }

  void give_back(void* block) {
    if (block == nullptr) return;
    EXPECT_EQ(live_.erase(block), 1u);
    std::free(block);
  }

  std::map<void*, std::size_t> live_;
  std::vector<void*> waiting_;
  unsigned requests_ = 0;
};

struct Outcome {
  CountingSubject subject;
  bool passed = false;
};

void run_one(unsigned test, Outcome& outcome, const Parameters& parameters) {
  Context context{parameters, 2, Random(1)};
  outcome.passed = run_case(outcome.subject, test, context);
}

Parameters few_loops() {
  Parameters p;
  p.test_loop_count = 500;
  p.nr_pcpu_objects = 600;
  return p;
}

TEST(TestVmallocCases, EveryTestPassesExceptAlignShiftAndGivesEverythingBack) {
  const Parameters p = few_loops();
  for (unsigned test = 0; test < kTestCount; ++test) {
    Outcome outcome;
    run_one(test, outcome, p);
    EXPECT_EQ(outcome.passed, test != kAlignShift) << kTests[test].name;
    EXPECT_EQ(outcome.subject.live(), 0u) << kTests[test].name;
  }
}

TEST(TestVmallocCases, AnyFailureIsAFailedTestThatLeaksNothing) {
  const Parameters p = few_loops();
  for (unsigned test = 0; test < kTestCount; ++test) {
    for (const unsigned allowed : {0u, 1u, 2u, 7u, 300u}) {
      Outcome outcome;
      outcome.subject.fail_after = allowed;
      run_one(test, outcome, p);
      EXPECT_FALSE(outcome.passed) << kTests[test].name << " with " << allowed;
      EXPECT_EQ(outcome.subject.live(), 0u) << kTests[test].name << " with " << allowed;
    }
  }
}

TEST(TestVmallocCases, SizesCountsAndAlignmentsAreTheKernels) {
  const Parameters p = few_loops();
  {
    Outcome o;
    run_one(kFullFit, o, p);
    // Two arrays, 2 x 16384 pages on two CPUs, then the loop.
    EXPECT_EQ(o.subject.asked["vmalloc"].times, 2 + 2 * 16384 + 500u);
    EXPECT_EQ(o.subject.asked["vmalloc"].largest, 16384 * 8u);
    EXPECT_EQ(o.subject.most_live, 2 + 2 * 16384u);
  }
  {
    Outcome o;
    run_one(kLongBusyList, o, p);
    EXPECT_EQ(o.subject.asked["vmalloc"].times, 1 + 15'000 + 2 * 500u);
    EXPECT_EQ(o.subject.asked["vmalloc"].largest, 100 * kPageSize);
  }
  {
    Outcome o;
    run_one(kRandomSize, o, p);
    EXPECT_EQ(o.subject.asked["vmalloc"].smallest, kPageSize);
    EXPECT_EQ(o.subject.asked["vmalloc"].largest, 100 * kPageSize);
  }
  {
    Outcome o;
    run_one(kFixAlign, o, p);
    EXPECT_EQ(o.subject.asked["vzalloc_aligned"].smallest, 5 * kPageSize);
    EXPECT_EQ(o.subject.asked["vzalloc_aligned"].largest_alignment, 64u << 10);
  }
  {
    Outcome o;
    run_one(kRandomSizeAlign, o, p);
    EXPECT_EQ(o.subject.asked["vzalloc_aligned"].smallest, kPageSize);
    EXPECT_EQ(o.subject.asked["vzalloc_aligned"].largest, 10 * kPageSize);
    EXPECT_EQ(o.subject.asked["vzalloc_aligned"].largest_alignment, 4u << 20);
  }
  {
    Outcome o;
    run_one(kPcpu, o, p);
    EXPECT_EQ(o.subject.asked["alloc_percpu"].times, 600u);
    EXPECT_LE(o.subject.asked["alloc_percpu"].largest, kPageSize / 4);
    EXPECT_EQ(o.subject.asked["alloc_percpu"].largest_alignment, 2048u);
  }
  {
    Outcome o;
    run_one(kVrealloc, o, p);
    EXPECT_EQ(o.subject.asked["vrealloc"].times, 4 * 500u);
    EXPECT_EQ(o.subject.asked["vrealloc"].smallest, kPageSize / 2);
    EXPECT_EQ(o.subject.asked["vrealloc"].largest, 4 * kPageSize);
  }
}

TEST(TestVmallocCases, YardstickRunsItsTestsAndLeavesNoMappingBehind) {
  Parameters p = few_loops();
  MmapSubject subject;
  const auto mappings = [] {
    std::FILE* const maps = std::fopen("/proc/self/maps", "r");
    int lines = 0;
    for (int c; (c = std::fgetc(maps)) != EOF;) lines += c == '\n';
    std::fclose(maps);
    return lines;
  };
  Context context{p, 2, Random(1)};
  for (unsigned test = 0; test < kTestCount; ++test) {
    if ((MmapSubject::kTestMask & (1u << test)) == 0) continue;
    const int before = mappings();
    EXPECT_TRUE(run_case(subject, test, context)) << kTests[test].name;
    EXPECT_LE(mappings(), before + 1) << kTests[test].name;
  }
  EXPECT_EQ(MmapSubject::kTestMask & 64u, 0u);
  EXPECT_EQ(MmapSubject::kTestMask & 128u, 0u);
  EXPECT_EQ(MmapSubject::kTestMask & 1024u, 0u);
  EXPECT_EQ(MmapSubject::kTestMask & 4096u, 0u);
}

TEST(TestVmallocServe, AnswersEachRequestWithOneTimePerWorker) {
  std::istringstream requests("1 10 2\n64 5 1\n3 1 1\n1 0 1\n");
  std::ostringstream answers;
  Parameters p;
  serve(requests, answers, p, 2, kAllTests, [](unsigned test, Context& context) {
    EXPECT_EQ(context.parameters.test_loop_count, test == kFixSize ? 10u : 5u);
    return test != kAlignShift;
  });
  std::istringstream lines(answers.str());
  std::uint64_t ns = 0;
  std::string word;
  EXPECT_TRUE(lines >> ns >> ns >> word);
  EXPECT_EQ(word, "passed");
  EXPECT_TRUE(lines >> ns >> word);
  EXPECT_EQ(word, "xfailed");
  std::getline(lines, word);
  std::getline(lines, word);
  EXPECT_TRUE(word.starts_with("error:")) << word;
  std::getline(lines, word);
  EXPECT_TRUE(word.starts_with("error:")) << word;
}

}  // namespace
}  // namespace penumbra::bench::vmalloc
