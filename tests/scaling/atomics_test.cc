// How many locked operations, on how many lines that others lock too, an allocation and its free take.
//
// Two threads on nodes of their own, each allocating and freeing from its pools; counting_atomic.h counts. Stated and
// held here: five locked operations a pair (the node's lock twice taken and given back, the claim), and next to none of
// them on a line that the other thread locks as well. A check locks nothing. Prints TAP.
#include <cstdio>

#include "allocator/region/region_allocator.h"
#include "allocator/region/thread_hint.h"
#include "shadow/address_map.h"
#include "shadow/check.h"

namespace penumbra::region {
namespace {

constexpr std::uint64_t kPairs = 2000;

struct Tally {
  std::uint64_t locked = 0;
  std::unordered_map<std::uintptr_t, std::uint64_t> by_line;
};

template <class Work>
Tally count(Work work) {
  counting::locked.by_line.clear();
  counting::locked.enabled = true;
  work();
  counting::locked.enabled = false;
  Tally tally;
  tally.by_line.swap(counting::locked.by_line);
  for (const auto& [line, times] : tally.by_line) tally.locked += times;
  return tally;
}

int g_number = 0;
bool g_failed = false;

void claim(bool good, const char* what, double value, double limit) {
  std::printf("%s %d - %s: %.3f, at most %.3f\n", good ? "ok" : "not ok", ++g_number, what, value, limit);
  g_failed = g_failed || !good;
}

AppAddr allocate(RegionAllocator<LazyShadow>& regions, std::size_t bytes) {
  Request request;
  request.bytes = bytes;
  return regions.allocate(request);
}

int run() {
  static RegionAllocator<LazyShadow> regions;
  Config config;
  config.nodes = 2;
  config.span_bytes = std::size_t{1} << 30;
  if (!shadow::reserve_direct_map().ok() || !regions.init(config).ok()) return 2;
  std::printf("1..4\n");
  Tally tallies[2];
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      thread_hint.cpu = t;
      thread_hint.uses_left = ~0u;
      std::vector<AppAddr> warm;
      for (int i = 0; i < 30000; ++i) warm.push_back(allocate(regions, kPageSize));
      for (const AppAddr a : warm) regions.free(a, kNoStack);
      tallies[t] = count([&] {
        for (std::uint64_t i = 0; i < kPairs; ++i) regions.free(allocate(regions, kPageSize), kNoStack);
      });
    });
    // One after the other: what a purge does is counted with whoever does it, and none is due in between.
    threads.back().join();
  }
  std::uint64_t shared = 0;
  std::uint64_t shared_lines = 0;
  for (const auto& [line, times] : tallies[0].by_line) {
    const auto other = tallies[1].by_line.find(line);
    if (other == tallies[1].by_line.end()) continue;
    ++shared_lines;
    shared += times + other->second;
  }
  const double pairs = 2.0 * kPairs;
  const double locked = static_cast<double>(tallies[0].locked + tallies[1].locked) / pairs;
  claim(locked <= 5.2, "locked operations of an allocation and its free", locked, 5.2);
  const double on_shared = static_cast<double>(shared) / pairs;
  claim(on_shared <= 0.1, "of these on lines that another thread locks", on_shared, 0.1);
  claim(shared_lines <= 3, "lines that both threads lock", static_cast<double>(shared_lines), 3);

  const AppAddr area = allocate(regions, 64 * kPageSize);
  std::uint64_t bad = 0;
  const Tally checks = count([&] {
    for (std::size_t at = 0; at < 1000; ++at) bad += shadow::first_bad(area + at * 8, 64) != shadow::kNoBadByte;
  });
  claim(checks.locked == 0 && bad == 0, "locked operations of a check", static_cast<double>(checks.locked), 0);
  return g_failed ? 1 : 0;
}

}  // namespace
}  // namespace penumbra::region

int main() {
  return penumbra::region::run();
}
