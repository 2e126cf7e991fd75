#include "bench/vmalloc/driver.h"

#include <time.h>
#include <x86intrin.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <utility>

namespace penumbra::bench::vmalloc {
namespace {

enum class Gate : int { kClosed, kOpen, kAbandoned };

std::uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

void run_test(unsigned test, Context& context, const Runner& runner, TestScore& score) {
  const unsigned repeats = context.parameters.test_repeat_count;
  const std::uint64_t start = now_ns();
  for (unsigned repeat = 0; repeat < repeats; ++repeat) {
    if (runner(test, context)) {
      ++score.passed;
    } else if (kTests[test].xfail) {
      ++score.xfailed;
    } else {
      ++score.failed;
    }
  }
  score.ns = (now_ns() - start) / repeats;
}

void run_worker(Context context, unsigned mask, const Runner& runner, WorkerScore& score) {
  std::vector<unsigned> order(kTestCount);
  std::iota(order.begin(), order.end(), 0);
  if (!context.parameters.sequential_test_order) order = shuffled_order(kTestCount, context.random);
  const std::uint64_t start = __rdtsc();
  for (const unsigned test : order) {
    if ((mask & (1u << test)) != 0) run_test(test, context, runner, score.tests[test]);
  }
  score.cycles = __rdtsc() - start;
}

}  // namespace

std::vector<unsigned> shuffled_order(unsigned count, Random& random) {
  std::vector<unsigned> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (unsigned i = count - 1; i > 0; --i) std::swap(order[i], order[random.below(i)]);
  return order;
}

std::vector<WorkerScore> run_workers(const Parameters& parameters, unsigned cpus, unsigned supported,
                                     const Runner& runner) {
  const unsigned workers = parameters.nr_threads;
  std::vector<WorkerScore> scores(workers);
  const unsigned mask = parameters.run_test_mask & supported;
  std::atomic<Gate> gate{Gate::kClosed};
  std::vector<std::jthread> threads;  // joins before the gate and the scores go
  threads.reserve(workers);
  try {
    for (unsigned worker = 0; worker < workers; ++worker) {
      threads.emplace_back([&, worker] {
        gate.wait(Gate::kClosed);
        if (gate.load() == Gate::kAbandoned) return;
        run_worker(Context{parameters, cpus, Random(worker)}, mask, runner, scores[worker]);
      });
    }
  } catch (...) {
    gate = Gate::kAbandoned;
    gate.notify_all();
    throw;
  }
  gate = Gate::kOpen;
  gate.notify_all();
  threads.clear();
  return scores;
}

std::string summary_line(unsigned test, const TestScore& score, const Parameters& parameters) {
  return std::string("Summary: ") + kTests[test].name + " passed: " + std::to_string(score.passed) +
         " failed: " + std::to_string(score.failed) + " xfailed: " + std::to_string(score.xfailed) +
         " repeat: " + std::to_string(parameters.test_repeat_count) +
         " loops: " + std::to_string(parameters.test_loop_count) + " avg: " + std::to_string(score.ns / 1000) +
         " usec";
}

std::string worker_line(std::size_t worker, const WorkerScore& score) {
  return "All test took worker" + std::to_string(worker) + "=" + std::to_string(score.cycles) + " cycles";
}

}  // namespace penumbra::bench::vmalloc
