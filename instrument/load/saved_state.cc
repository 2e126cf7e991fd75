#include "instrument/load/saved_state.h"

#include <cpuid.h>

#include <atomic>

namespace penumbra::load {
namespace {

// Intel's manual, volume 1, chapter 13: components 0 and 1 lie in the legacy area; the header stands at 512, its first
// word the components that are present, its second with bit 63 set for the compacted format.
constexpr unsigned kFirstExtended = 2;
constexpr unsigned kComponents = 63;
constexpr std::uint64_t kCompacted = std::uint64_t{1} << 63;

// Size and place of a component, and whether the compacted format aligns it; asked of the processor once (a virtual
// machine may take tens of microseconds to answer). Two threads that ask at once write the same.
struct Component {
  std::atomic<std::uint32_t> bytes{0};
  std::atomic<std::uint32_t> offset{0};
  std::atomic<std::uint32_t> flags{0};
  std::atomic<bool> is_known{false};
};
constinit Component g_components[kComponents];

const Component& component(unsigned n) {
  Component& c = g_components[n];
  if (!c.is_known.load(std::memory_order_acquire)) {
    unsigned bytes = 0, offset = 0, flags = 0, unused = 0;
    __cpuid_count(0xd, n, bytes, offset, flags, unused);
    c.bytes.store(bytes, std::memory_order_relaxed);
    c.offset.store(offset, std::memory_order_relaxed);
    c.flags.store(flags, std::memory_order_relaxed);
    c.is_known.store(true, std::memory_order_release);
  }
  return c;
}

std::uint64_t enabled_components() {
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

}  // namespace

std::size_t saved_state_bytes(const std::uint8_t* opcode, std::uint64_t wanted, const StateHeader& header) {
  const unsigned extension = (opcode[1] >> 3) & 7u;
  // 0f ae: /4 xsave /5 xrstor /6 xsaveopt. 0f c7: /3 xrstors /4 xsavec /5 xsaves.
  const bool restores = opcode[0] == 0xae ? extension == 5 : extension == 3;
  std::uint64_t components = wanted & enabled_components();
  std::uint64_t layout = components;  // of the compacted format
  bool compacted = opcode[0] == 0xc7;
  if (restores) {
    components &= header.present;
    compacted = (header.format & kCompacted) != 0;
    layout = header.format & ~kCompacted;
  }
  std::size_t end = kStateHeaderEnd;
  std::size_t next = kStateHeaderEnd;
  for (unsigned n = kFirstExtended; n < kComponents; ++n) {
    const std::uint64_t bit = std::uint64_t{1} << n;
    if (((compacted ? layout : components) & bit) == 0) continue;
    const Component& c = component(n);
    const std::size_t bytes = c.bytes.load(std::memory_order_relaxed);
    std::size_t begin = c.offset.load(std::memory_order_relaxed);
    if (compacted) {
      begin = (c.flags.load(std::memory_order_relaxed) & 2) != 0 ? (next + 63) & ~std::size_t{63} : next;
      next = begin + bytes;
    }
    if ((components & bit) != 0 && begin + bytes > end) end = begin + bytes;
  }
  return end;
}

}  // namespace penumbra::load
