// The yardstick: what a program without an allocator for whole pages would write, mmap and munmap.
//
// An alignment above the page is had by mapping more and giving the ends back. There is no such thing as
// vm_map_ram, per-CPU memory, vrealloc or an align_shift test without it, so those have no yardstick.
//
// zone: hosted
#pragma once

#include "bench/vmalloc/quiescent_rcu.h"
#include "bench/vmalloc/suite.h"
#include "runtime/base/config.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace penumbra::bench::vmalloc {

class MmapSubject {
 public:
  static constexpr unsigned kTestMask =
      kAllTests & ~(1u << kAlignShift | 1u << kPcpu | 1u << kVmMapRam | 1u << kVrealloc);

  // Null when the kernel refuses.
  void* vmalloc(std::size_t bytes) {
    void* const block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block == MAP_FAILED ? nullptr : block;
  }

  void* vmalloc_huge(std::size_t bytes) { return vzalloc_aligned(bytes, std::size_t{2} << 20); }

  void* vzalloc_aligned(std::size_t bytes, std::size_t alignment) {
    if (alignment <= kPageSize) return vmalloc(bytes);
    const std::size_t slack = alignment - kPageSize;
    void* const whole = vmalloc(bytes + slack);
    if (whole == nullptr) return nullptr;
    const auto begin = reinterpret_cast<std::uintptr_t>(whole);
    const std::uintptr_t block = round_up(begin, alignment);
    const std::size_t before = block - begin;
    if (before != 0) munmap(whole, before);
    if (before != slack) munmap(reinterpret_cast<void*>(block + bytes), slack - before);
    return reinterpret_cast<void*>(block);
  }

  void vfree(void* block, std::size_t bytes) {
    if (block != nullptr) munmap(block, bytes);
  }

  // The object lies in one page, its head at the beginning.
  bool kvfree_rcu(void* object) { return kvfree_rcu(object, object); }

  bool kvfree_rcu(void*, void* head) {
    quiescent_rcu::call_rcu(head, [](void* reached) {
      munmap(reinterpret_cast<void*>(round_down(reinterpret_cast<std::uintptr_t>(reached), kPageSize)), kPageSize);
    });
    return true;
  }

  void rcu_barrier() { quiescent_rcu::barrier(); }
};

}  // namespace penumbra::bench::vmalloc
