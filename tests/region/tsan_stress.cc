// Populate, release, purge and rescue by several threads, built with ThreadSanitizer.
//
// TSan's own shadow lies where the direct map would, so the span's shadow is ordinary memory here (Config::shadow).
// describe() and stats() are left out: they read what may be stale by design. TSan does not see the stores of
// rep stosb; every hand-over of memory and records is by atomics and plain stores, which it sees.
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "allocator/region/region_allocator.h"

namespace penumbra::region {
namespace {

constexpr std::size_t kSpanBytes = std::size_t{64} << 20;

RegionAllocator<LazyShadow> g_regions;
std::atomic<int> g_bad{0};

struct Owned {
  AppAddr at;
  std::size_t bytes;
};

bool allows(AppAddr a) {
  return g_regions.shadow().units().shadow_byte(a) == 0;
}

void work(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Owned> owned;
  for (int i = 0; i < 6000; ++i) {
    if (owned.size() < 10 || random() % 2 == 0) {
      Request request;
      request.bytes = random() % 64 == 0 ? std::size_t{2} << 20 : 1 + random() % (12 * kPageSize);
      const AppAddr a = g_regions.allocate(request);
      if (a.is_null()) continue;
      if (!allows(a) && request.bytes >= shadow::kGranuleSize) g_bad.fetch_add(1);
      a.ptr()[0] = a.ptr()[request.bytes - 1] = static_cast<std::uint8_t>(seed);
      owned.push_back({a, request.bytes});
    } else {
      const std::size_t n = random() % owned.size();
      const Owned area = owned[n];
      owned[n] = owned.back();
      owned.pop_back();
      if (area.at.ptr()[0] != static_cast<std::uint8_t>(seed)) g_bad.fetch_add(1);
      if (random() % 8 == 0) {
        g_regions.free_from_signal(area.at, kNoStack, {}, AreaKind::kVmalloc);
      } else if (g_regions.free(area.at, kNoStack) != FreeVerdict::kFreed) {
        g_bad.fetch_add(1);
      }
    }
    if (random() % 1024 == 0) g_regions.purge_all();
  }
  for (const Owned& area : owned) g_regions.free(area.at, kNoStack);
}

int run(bool worker) {
  const os::Result shadow = os::map_anonymous(kSpanBytes >> shadow::kGranuleShift);
  Config config;
  config.span_bytes = kSpanBytes;
  config.nodes = 2;
  config.purge_threshold = std::size_t{512} << 10;
  config.shadow_retain = 16 * kPageSize;
  config.retain = 64 * kPageSize;
  config.worker = worker;
  // So low that helpers come often.
  if (worker) config.purge_threshold = std::size_t{128} << 10;
  config.shadow = ShadowAddr(shadow.address().value);
  if (!shadow.ok() || !g_regions.init(config).ok()) return 1;
  std::vector<std::thread> threads;
  for (unsigned t = 1; t <= 3; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  g_regions.purge_all();
  g_regions.validate();
  const bool clean = g_bad.load() == 0 && g_regions.stats().shadow_pages == 0;
  std::printf("%s\n", clean ? "clean" : "not clean");
  return clean ? 0 : 1;
}

}  // namespace
}  // namespace penumbra::region

// `worker`: a thread of the allocator's own purges as well.
int main(int argc, char**) {
  return penumbra::region::run(argc > 1);
}
