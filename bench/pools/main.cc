// A scratch buffer for a moment: a mapping of its own each time (clone) beside one of the pool's (per_cpu).
//
//     pools_bench BACKEND BYTES USES THREADS
//
// A use takes a buffer, touches one byte of each of its pages and gives it back. Prints nanoseconds of thread CPU time a
// use, the mean over all threads.
//
// zone: hosted
#include "runtime/base/scratch_pool.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

namespace penumbra::bench::pools {
namespace {

void touch(void* buffer, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kPageSize) static_cast<volatile char*>(buffer)[at] = 1;
}

template <class Use>
double measure(unsigned threads, std::size_t uses, Use use) {
  std::atomic<unsigned> ready{0};
  std::atomic<std::uint64_t> spent{0};
  std::vector<std::thread> all;
  for (unsigned t = 0; t < threads; ++t) {
    all.emplace_back([&] {
      ready.fetch_add(1);
      while (ready.load() != threads) std::this_thread::yield();
      const std::uint64_t begun = os::thread_cpu_ns();
      for (std::size_t i = 0; i < uses; ++i) use();
      spent.fetch_add(os::thread_cpu_ns() - begun);
    });
  }
  for (std::thread& thread : all) thread.join();
  return static_cast<double>(spent.load()) / static_cast<double>(uses * threads);
}

int run(std::string_view backend, std::size_t bytes, std::size_t uses, unsigned threads) {
  bytes = round_up(bytes, kPageSize);
  std::atomic<std::uint64_t> missed{0};
  double ns = 0;
  if (backend == "clone") {
    ns = measure(threads, uses, [&] {
      const os::Result mapped = os::map_anonymous(bytes);
      if (!mapped.ok()) {
        missed.fetch_add(1);
        return;
      }
      touch(mapped.address().ptr<void>(), bytes);
      os::unmap(mapped.address(), bytes).ignore();
    });
  } else {
    ScratchPool pool(bytes);
    if (!pool.reserve()) return 1;
    ns = measure(threads, uses, [&] {
      void* const buffer = pool.acquire();
      if (buffer == nullptr) {
        missed.fetch_add(1, std::memory_order_relaxed);
        return;
      }
      touch(buffer, bytes);
      pool.release(buffer);
    });
    pool.unreserve();
  }
  std::printf("%.2f %lu\n", ns, missed.load());
  return 0;
}

}  // namespace
}  // namespace penumbra::bench::pools

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s clone|per_cpu BYTES USES THREADS\n", argv[0]);
    return 2;
  }
  const auto number = [argv](int i) { return std::strtoul(argv[i], nullptr, 10); };
  return penumbra::bench::pools::run(argv[1], number(2), number(3), static_cast<unsigned>(number(4)));
}
