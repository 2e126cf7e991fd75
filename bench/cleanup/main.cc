// One run of the clean-up under load: a burst of areas goes out of use while threads allocate and free.
//
//     cleanup_bench SCENARIO AREAS PAIRS CHUNK PAGES calls|worker
//
// SCENARIO  once       all AREAS go out of use at one moment: a thread gives them up as signal handlers do, with
//                      nothing but a claim, and the others have all the rest to do
//           expiring   the allocating threads free them bit by bit, evenly over their work
//           mixed      one half so, the other half so
// PAIRS     allocations and frees that each of the two allocating threads makes beside that
// CHUNK     purge_chunk: areas of a step; 0 is unchunked
// PAGES     purge_pages: the page bound of a step; 0 is none
//
// The last word says who purges: the allocating threads' calls, or the allocator's own thread (worker=1).
//
// An operation is an allocation and the free of the oldest area, with whatever of the clean-up falls to the thread in
// them: which of the two calls meets it is chance. Times are thread CPU time, so that a busy machine does not count, in
// nanoseconds; the cost of reading the clock is taken off. Printed is one line of words `name=value`: of purge steps,
// operations and allocations alone their count, least, mean, greatest, variance (us^2) and 99.9th percentile; and the
// CPU time of all threads until nothing is due.
//
// zone: hosted
#include "allocator/region/region_allocator.h"
#include "shadow/address_map.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

namespace penumbra::bench::cleanup {
namespace {

using Regions = region::RegionAllocator<region::LazyShadow>;

constexpr unsigned kThreads = 2;
constexpr std::size_t kLive = 64;          // areas that each allocating thread holds
constexpr std::size_t kRetain = 32 << 20;  // the default of retain=

std::vector<std::uint64_t> g_steps;  // written under the purge mutex

std::uint64_t cpu_ns(clockid_t clock = CLOCK_THREAD_CPUTIME_ID) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint64_t clock_cost() {
  std::vector<std::uint64_t> costs(1001);
  for (std::uint64_t& cost : costs) {
    const std::uint64_t before = cpu_ns();
    cost = cpu_ns() - before;
  }
  std::nth_element(costs.begin(), costs.begin() + 500, costs.end());
  return costs[500];
}

// Mostly a page, seldom up to eight: 1.9 in the mean.
std::size_t any_size(std::minstd_rand& random) {
  const unsigned n = random() % 16;
  return (n < 12 ? 1 : 1 + random() % 8) * kPageSize;
}

AppAddr allocate(Regions& regions, std::size_t bytes) {
  region::Request request;
  request.bytes = bytes;
  const AppAddr a = regions.allocate(request);
  if (a.is_null()) {
    std::perror("cleanup_bench: allocate");
    std::exit(1);
  }
  return a;
}

struct Worker {
  std::vector<std::uint64_t> allocations;
  std::vector<std::uint64_t> operations;
  std::uint64_t cpu = 0;
};

// `expiring` is this thread's share of what is freed bit by bit.
void work(Regions& regions, unsigned seed, std::size_t pairs, const AppAddr* expiring, std::size_t count,
          std::uint64_t clock, Worker& worker) {
  std::minstd_rand random(seed);
  std::vector<AppAddr> live(kLive);
  const std::uint64_t begun = cpu_ns();
  const auto without_clock = [clock](std::uint64_t ns) { return ns > clock ? ns - clock : 0; };
  std::size_t expired = 0;
  for (std::size_t i = 0; i < pairs; ++i) {
    const std::size_t bytes = any_size(random);
    AppAddr& oldest = live[i % kLive];
    const std::uint64_t before = cpu_ns();
    const AppAddr a = allocate(regions, bytes);
    const std::uint64_t between = cpu_ns();
    a.ptr()[0] = 1;
    const std::uint64_t touched = cpu_ns();
    if (!oldest.is_null()) regions.free(oldest, kNoStack);
    for (const std::size_t due = count * (i + 1) / pairs; expired < due; ++expired) {
      regions.free(expiring[expired], kNoStack);
    }
    const std::uint64_t after = cpu_ns();
    oldest = a;
    worker.allocations[i] = without_clock(between - before);
    worker.operations[i] = without_clock(between - before) + without_clock(after - touched);
  }
  for (const AppAddr a : live) regions.free(a, kNoStack);
  worker.cpu = cpu_ns() - begun;
}

void print_figures(const char* name, std::vector<std::uint64_t> values) {
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const std::uint64_t v : values) sum += static_cast<double>(v);
  const double count = static_cast<double>(std::max<std::size_t>(values.size(), 1));
  const double mean = sum / count;
  double squares = 0;
  for (const std::uint64_t v : values) squares += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean);
  if (values.empty()) values.push_back(0);
  const std::size_t p999 = values.size() - 1 - (values.size() - 1) / 1000;
  std::printf("%s_count=%.0f %s_min=%lu %s_avg=%.1f %s_max=%lu %s_variance=%.4f %s_p999=%lu ", name, count, name,
              values.front(), name, mean, name, values.back(), name, squares / count / 1e6, name, values[p999]);
}

int run(std::string_view scenario, std::size_t areas, std::size_t pairs, unsigned chunk, unsigned pages,
        bool worker) {
  const std::size_t at_once = scenario == "once" ? areas : scenario == "mixed" ? areas / 2 : 0;
  region::Config config;
  config.purge_chunk = chunk;
  config.purge_pages = pages;
  config.retain = kRetain;
  config.worker = worker;
  config.step_hook = [](std::uint64_t ns) { g_steps.push_back(ns); };
  const auto regions = std::make_unique<Regions>();
  if (!shadow::reserve_direct_map().ok() || !regions->init(config).ok()) {
    std::fprintf(stderr, "cleanup_bench: cannot reserve shadow and span\n");
    return 1;
  }
  std::minstd_rand random(1);
  std::vector<AppAddr> burst(areas);
  for (AppAddr& a : burst) {
    a = allocate(*regions, any_size(random));
    a.ptr()[0] = 1;
  }
  // Touched beforehand, so that no page fault of the measuring is measured.
  g_steps.assign(areas + 4 * pairs, 0);
  g_steps.clear();
  Worker workers[kThreads];
  for (Worker& worker : workers) {
    worker.allocations.assign(pairs, 0);
    worker.operations.assign(pairs, 0);
  }
  const std::uint64_t clock = clock_cost();
  std::uint64_t cpu = 0;
  const std::uint64_t all_begun = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
  std::uint64_t begun = cpu_ns();
  for (std::size_t i = 0; i < at_once; ++i) {
    regions->free_from_signal(burst[i], kNoStack, {}, region::AreaKind::kVmalloc);
  }
  cpu += cpu_ns() - begun;
  std::atomic<unsigned> ready{0};
  std::vector<std::thread> threads;
  const std::size_t share = (areas - at_once) / kThreads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      ready.fetch_add(1);
      while (ready.load() != kThreads) std::this_thread::yield();
      work(*regions, t + 2, pairs, burst.data() + at_once + t * share, share, clock, workers[t]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  // What is left of the passes that were due; below the threshold things may wait.
  begun = cpu_ns();
  regions->hold_worker();
  while (regions->purge_step()) {
  }
  cpu += cpu_ns() - begun;
  const std::uint64_t all = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - all_begun;
  std::vector<std::uint64_t> allocations;
  std::vector<std::uint64_t> operations;
  for (const Worker& worker : workers) {
    allocations.insert(allocations.end(), worker.allocations.begin(), worker.allocations.end());
    operations.insert(operations.end(), worker.operations.begin(), worker.operations.end());
    // Reading the clock is not part of the work.
    cpu += worker.cpu - std::min(worker.cpu, 4 * clock * pairs);
  }
  // The allocator's thread can only be seen in the whole.
  const std::uint64_t reading = kThreads * 4 * clock * pairs;
  if (worker) cpu = all - std::min(all, reading);
  print_figures("step", std::move(g_steps));
  print_figures("operation", std::move(operations));
  print_figures("allocation", std::move(allocations));
  const region::Stats stats = regions->stats();
  std::printf("total=%lu flushes=%lu passes=%lu\n", cpu, stats.flushes, stats.purge_passes);
  return 0;
}

}  // namespace
}  // namespace penumbra::bench::cleanup

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "usage: %s once|expiring|mixed AREAS PAIRS CHUNK PAGES calls|worker\n", argv[0]);
    return 2;
  }
  const auto number = [argv](int i) { return std::strtoul(argv[i], nullptr, 10); };
  return penumbra::bench::cleanup::run(argv[1], number(2), number(3), static_cast<unsigned>(number(4)),
                                       static_cast<unsigned>(number(5)), std::string_view(argv[6]) == "worker");
}
