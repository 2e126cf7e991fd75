// Operations of one kind by N threads, or N processes, at once, in the manner of will-it-scale:
//
//     scaling_bench ROW threads|processes N OPERATIONS
//
// small             allocate a page, touch it, free it
// mixed             the same with 1 to 64 pages
// large             the same with 2 MiB, which the global node gives (shared by nature)
// check             a range of 64 bytes of an area of one's own
// populate_private  a taker more and a taker less for a shadow unit that nobody else uses
// populate_shared   the same for one unit of all (shared by nature)
//
// Each does OPERATIONS of them, all begin together. Prints thread CPU nanoseconds, summed over all, wall nanoseconds
// from the first begin to the last end, and operations.
//
// zone: hosted
#include "allocator/region/region_allocator.h"
#include "shadow/address_map.h"
#include "shadow/check.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

namespace penumbra::bench::scaling {
namespace {

using Regions = region::RegionAllocator<region::LazyShadow>;

constexpr std::size_t kLarge = 2 << 20;

// In memory that processes share.
struct Board {
  std::atomic<unsigned> ready;
  std::atomic<std::uint64_t> cpu_ns;
  std::atomic<std::uint64_t> first_begin;
  std::atomic<std::uint64_t> last_end;
};

AppAddr allocate(Regions& regions, std::size_t bytes) {
  region::Request request;
  request.bytes = bytes;
  const AppAddr a = regions.allocate(request);
  if (a.is_null()) std::_Exit(1);
  return a;
}

void allocate_and_free(Regions& regions, std::size_t bytes) {
  const AppAddr a = allocate(regions, bytes);
  *a.ptr<volatile std::uint8_t>() = 1;
  regions.free(a, kNoStack);
}

// `row` on `regions`; `place` is a unit of shared use.
void operate(Regions& regions, std::string_view row, std::size_t count, AppAddr place, unsigned seed) {
  std::minstd_rand random(seed + 1);
  auto& units = regions.shadow().units();
  constexpr auto kTag = shadow::ShadowTag::kRegionInvalid;
  if (row == "small") {
    for (std::size_t i = 0; i < count; ++i) allocate_and_free(regions, kPageSize);
  } else if (row == "mixed") {
    for (std::size_t i = 0; i < count; ++i) allocate_and_free(regions, (1 + random() % 64) * kPageSize);
  } else if (row == "large") {
    for (std::size_t i = 0; i < count; ++i) allocate_and_free(regions, kLarge);
  } else if (row == "check") {
    const AppAddr own = allocate(regions, 64 * kPageSize);
    for (std::size_t i = 0; i < count; ++i) {
      if (shadow::first_bad(own + (i % 4000) * 64, 64) != shadow::kNoBadByte) std::_Exit(1);
    }
  } else if (row == "populate_private" || row == "populate_shared") {
    const AppAddr unit = row == "populate_shared" ? place : allocate(regions, 32 * kPageSize) + 16 * kPageSize;
    for (std::size_t i = 0; i < count; ++i) {
      if (!units.take(unit, 1, kTag)) std::_Exit(1);
      units.release(unit, 1);
    }
  } else {
    std::fprintf(stderr, "scaling_bench: no row %s\n", row.data());
    std::_Exit(2);
  }
}

void work(Regions& regions, std::string_view row, std::size_t count, AppAddr place, unsigned number, unsigned all,
          Board& board) {
  operate(regions, row, count / 10 + 1, place, number);  // pools fill, tables are touched
  board.ready.fetch_add(1);
  while (board.ready.load() != all) std::this_thread::yield();
  std::uint64_t none = 0;
  board.first_begin.compare_exchange_strong(none, os::monotonic_ns());
  const std::uint64_t begun = os::thread_cpu_ns();
  operate(regions, row, count, place, number);
  board.cpu_ns.fetch_add(os::thread_cpu_ns() - begun);
  const std::uint64_t end = os::monotonic_ns();
  std::uint64_t last = board.last_end.load();
  while (last < end && !board.last_end.compare_exchange_weak(last, end)) {
  }
}

int run(std::string_view row, bool processes, unsigned n, std::size_t count) {
  void* const shared = mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  Board& board = *static_cast<Board*>(shared);  // zero bytes are a board
  static Regions regions;
  region::Config config;
  config.retain = 32 << 20;
  if (!shadow::reserve_direct_map().ok() || !regions.init(config).ok()) return 1;
  shadow::set_span({regions.span().begin, regions.span().end, [](AppAddr begin, AppAddr end) {
                      return regions.shadow().units().first_unpopulated(begin, end);
                    }});
  const AppAddr place = allocate(regions, 16 * kPageSize);
  if (processes) {
    for (unsigned i = 0; i < n; ++i) {
      regions.fork_prepare();
      const pid_t child = fork();
      if (child == 0) {
        regions.fork_child();
        work(regions, row, count, place, i, n, board);
        std::_Exit(0);
      }
      regions.fork_parent();
      if (child < 0) return 1;
    }
    for (unsigned i = 0; i < n; ++i) {
      int status = 0;
      if (wait(&status) < 0 || status != 0) return 1;
    }
  } else {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < n; ++i) {
      threads.emplace_back([&, i] { work(regions, row, count, place, i, n, board); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::printf("%lu %lu %lu\n", board.cpu_ns.load(), board.last_end.load() - board.first_begin.load(), n * count);
  return 0;
}

}  // namespace
}  // namespace penumbra::bench::scaling

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s ROW threads|processes N OPERATIONS\n", argv[0]);
    return 2;
  }
  return penumbra::bench::scaling::run(argv[1], std::string_view(argv[2]) == "processes",
                                       static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10)),
                                       std::strtoul(argv[4], nullptr, 10));
}
