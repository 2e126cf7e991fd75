// What one flush per area costs on a large machine, and what one per chunk does: tlb_bench CPUS AREAS CHUNK
//
// Frees AREAS areas of one touched page each and purges them, with the cost of CPUS modelled CPUs in every flush
// (1 us + 29 us a CPU: 7.5 ms on 256, as the kernel saw; facts kasan 1.6 #12). Prints thread CPU time in nanoseconds
// and the flushes made.
//
// zone: hosted
#include "allocator/region/region_allocator.h"
#include "shadow/address_map.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace penumbra::bench::tlb {
namespace {

int run(unsigned cpus, std::size_t areas, unsigned chunk) {
  region::Config config;
  config.nodes = 1;
  config.purge_chunk = chunk;
  config.flush_cost = {.base_ns = 1000, .per_cpu_ns = 29'000, .cpus = cpus};
  config.purge_threshold = std::uint64_t{1} << 40;  // nothing is purged before it is asked for
  const auto regions = std::make_unique<region::RegionAllocator<region::LazyShadow>>();
  if (!shadow::reserve_direct_map().ok() || !regions->init(config).ok()) {
    std::fprintf(stderr, "tlb_bench: cannot reserve shadow and span\n");
    return 1;
  }
  std::vector<AppAddr> all(areas);
  for (AppAddr& a : all) {
    region::Request request;
    request.bytes = kPageSize;
    a = regions->allocate(request);
    if (a.is_null()) return 1;
    a.ptr()[0] = 1;
  }
  for (const AppAddr a : all) regions->free(a, kNoStack);
  const std::uint64_t flushes = regions->stats().flushes;
  const std::uint64_t begun = os::thread_cpu_ns();
  regions->purge_all();
  std::printf("%lu %lu\n", os::thread_cpu_ns() - begun, regions->stats().flushes - flushes);
  return 0;
}

}  // namespace
}  // namespace penumbra::bench::tlb

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s CPUS AREAS CHUNK\n", argv[0]);
    return 2;
  }
  const auto number = [argv](int i) { return std::strtoul(argv[i], nullptr, 10); };
  return penumbra::bench::tlb::run(static_cast<unsigned>(number(1)), number(2), static_cast<unsigned>(number(3)));
}
