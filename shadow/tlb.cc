#include "shadow/tlb.h"

#include "runtime/base/os_linux.h"

namespace penumbra::shadow {
namespace {

// Burns CPU time of this thread, as waiting for the answers of other CPUs does. Clocks stand once the process is sealed.
void spend(std::uint64_t ns) {
  const std::uint64_t begun = os::thread_cpu_ns();
  while (!os::is_sealed() && os::thread_cpu_ns() - begun < ns) __builtin_ia32_pause();
}

void add(std::atomic<std::uint64_t>& count, std::uint64_t n) {
  count.store(count.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

}  // namespace

void Tlb::flush(std::uint64_t ranges, std::uint64_t pages) {
  generation_.store(generation_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  add(flushes_, 1);
  add(ranges_, ranges);
  add(pages_, pages);
  if (const std::uint64_t cost = cost_.of_one(); cost != 0) spend(cost);
}

}  // namespace penumbra::shadow
