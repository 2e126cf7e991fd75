// The bodies of the thirteen tests, each over any subject (an allocator seen through the kernel's verbs).
//
// Sizes, counts and alignments are those of lib/test_vmalloc.c on x86-64 with KASAN. A body touches exactly
// the bytes that the kernel's touches: mostly the first of a block. What user space cannot do is left out:
// no_block does not switch preemption off. Every body frees what it took, also when it fails. vfree() gets
// the size too, which munmap needs and a caller knows; vfree(null) is allowed.
//
// zone: hosted
#pragma once

#include "bench/vmalloc/context.h"
#include "bench/vmalloc/suite.h"
#include "runtime/base/config.h"

#include <cstddef>
#include <cstdint>
#include <new>

namespace penumbra::bench::vmalloc {

// THREAD_ALIGN << 1 in a kernel with KASAN: THREAD_SIZE is 32 KiB there
// (arch/x86/include/asm/page_64_types.h).
inline constexpr std::size_t kFixAlignment = std::size_t{64} << 10;
// Pages that full_fit fragments, a CPU bit: the kernel's lazy_max_pages().
inline constexpr std::size_t kFullFitPages = (std::size_t{32} << 20) / kPageSize;
inline constexpr unsigned kLongBusyAreas = 15'000;

// fls: position of the highest bit, 1-based.
constexpr unsigned fls(unsigned value) {
  return value == 0 ? 0 : 32 - static_cast<unsigned>(__builtin_clz(value));
}

inline void touch(void* block, unsigned char value) {
  *static_cast<volatile unsigned char*>(block) = value;
}

template <class Subject>
bool fix_size(Subject& subject, Context& context) {
  const Parameters& p = context.parameters;
  const std::size_t bytes = p.nr_pages * kPageSize;
  for (unsigned i = 0; i < p.test_loop_count; ++i) {
    void* const block = p.use_huge ? subject.vmalloc_huge(bytes) : subject.vmalloc(bytes);
    if (block == nullptr) return false;
    touch(block, 0);
    subject.vfree(block, bytes);
  }
  return true;
}

// Every second one of 2n single pages is freed: the loop's pages fit the holes exactly.
template <class Subject>
bool full_fit(Subject& subject, Context& context) {
  const std::size_t count = fls(context.cpus) * kFullFitPages;
  const std::size_t array_bytes = count * sizeof(void*);
  auto** const kept = static_cast<void**>(subject.vmalloc(array_bytes));
  if (kept == nullptr) return false;
  auto** const junk = static_cast<void**>(subject.vmalloc(array_bytes));
  if (junk == nullptr) {
    subject.vfree(kept, array_bytes);
    return false;
  }
  bool passed = true;
  for (std::size_t i = 0; i < count; ++i) {
    kept[i] = subject.vmalloc(kPageSize);
    junk[i] = subject.vmalloc(kPageSize);
    passed = passed && kept[i] != nullptr && junk[i] != nullptr;
  }
  for (std::size_t i = 0; i < count; ++i) subject.vfree(junk[i], kPageSize);
  for (unsigned i = 0; passed && i < context.parameters.test_loop_count; ++i) {
    void* const block = subject.vmalloc(kPageSize);
    if (block == nullptr) {
      passed = false;
      break;
    }
    touch(block, 1);
    subject.vfree(block, kPageSize);
  }
  for (std::size_t i = 0; i < count; ++i) subject.vfree(kept[i], kPageSize);
  subject.vfree(kept, array_bytes);
  subject.vfree(junk, array_bytes);
  return passed;
}

template <class Subject>
bool long_busy_list(Subject& subject, Context& context) {
  auto** const kept = static_cast<void**>(subject.vmalloc(kLongBusyAreas * sizeof(void*)));
  if (kept == nullptr) return false;
  bool passed = true;
  for (unsigned i = 0; i < kLongBusyAreas; ++i) {
    kept[i] = subject.vmalloc(kPageSize);
    passed = passed && kept[i] != nullptr;
  }
  for (unsigned i = 0; passed && i < context.parameters.test_loop_count; ++i) {
    void* const large = subject.vmalloc(100 * kPageSize);
    void* const small = subject.vmalloc(kPageSize);
    passed = large != nullptr && small != nullptr;
    if (passed) {
      touch(large, 0);
      touch(small, 1);
    }
    subject.vfree(large, 100 * kPageSize);
    subject.vfree(small, kPageSize);
  }
  for (unsigned i = 0; i < kLongBusyAreas; ++i) subject.vfree(kept[i], kPageSize);
  subject.vfree(kept, kLongBusyAreas * sizeof(void*));
  return passed;
}

template <class Subject>
bool random_size(Subject& subject, Context& context) {
  for (unsigned i = 0; i < context.parameters.test_loop_count; ++i) {
    const std::size_t bytes = context.random.between(1, 100) * kPageSize;
    void* const block = subject.vmalloc(bytes);
    if (block == nullptr) return false;
    touch(block, 1);
    subject.vfree(block, bytes);
  }
  return true;
}

template <class Subject>
bool fix_align(Subject& subject, Context& context) {
  for (unsigned i = 0; i < context.parameters.test_loop_count; ++i) {
    void* const block = subject.vzalloc_aligned(5 * kPageSize, kFixAlignment);
    if (block == nullptr) return false;
    subject.vfree(block, 5 * kPageSize);
  }
  return true;
}

// Up to 4 MiB aligned (2 to the 22nd), 1 to 10 pages.
template <class Subject>
bool random_size_align(Subject& subject, Context& context) {
  for (unsigned i = 0; i < context.parameters.test_loop_count; ++i) {
    const unsigned random = context.random.next() & 0xff;
    const std::size_t bytes = (random % 10 + 1) * kPageSize;
    void* const block = subject.vzalloc_aligned(bytes, std::size_t{1} << (random % 23));
    if (block == nullptr) return false;
    subject.vfree(block, bytes);
  }
  return true;
}

// Expected to fail: no address space holds an alignment of 2 to the 63rd.
template <class Subject>
bool align_shift(Subject& subject, Context&) {
  for (unsigned shift = 0; shift < 64; ++shift) {
    void* const block = subject.vmalloc_aligned(kPageSize, std::size_t{1} << shift);
    if (block == nullptr) return false;
    subject.vfree(block, kPageSize);
  }
  return true;
}

template <class Subject>
bool pcpu(Subject& subject, Context& context) {
  const unsigned count = context.parameters.nr_pcpu_objects;
  auto** const objects = static_cast<void**>(subject.vmalloc(count * sizeof(void*)));
  if (objects == nullptr) return false;
  bool passed = true;
  for (unsigned i = 0; i < count; ++i) {
    const std::size_t bytes = context.random.between(1, kPageSize / 4);
    objects[i] = subject.alloc_percpu(bytes, std::size_t{1} << context.random.between(1, kPageShift - 1));
    passed = passed && objects[i] != nullptr;
  }
  for (unsigned i = 0; i < count; ++i) subject.free_percpu(objects[i]);
  subject.vfree(objects, count * sizeof(void*));
  return passed;
}

// An object with the provider's head inside. 32 bytes hold the head of every provider known (liburcu's has
// 16).
struct RcuObject {
  unsigned char head[32];
  unsigned char array[20];
};

template <class Subject>
bool kvfree_rcu_1_arg(Subject& subject, Context& context) {
  bool passed = true;
  for (unsigned i = 0; passed && i < context.parameters.test_loop_count; ++i) {
    auto* const object = static_cast<RcuObject*>(subject.vmalloc(kPageSize));
    if (object == nullptr) {
      passed = false;
      break;
    }
    touch(object->array, 'a');
    passed = subject.kvfree_rcu(object);
    if (!passed) subject.vfree(object, kPageSize);
  }
  subject.rcu_barrier();
  return passed;
}

template <class Subject>
bool kvfree_rcu_2_arg(Subject& subject, Context& context) {
  bool passed = true;
  for (unsigned i = 0; passed && i < context.parameters.test_loop_count; ++i) {
    auto* const object = static_cast<RcuObject*>(subject.vmalloc(kPageSize));
    if (object == nullptr) {
      passed = false;
      break;
    }
    touch(object->array, 'a');
    passed = subject.kvfree_rcu(object, object->head);
    if (!passed) subject.vfree(object, kPageSize);
  }
  subject.rcu_barrier();
  return passed;
}

template <class Subject>
bool vm_map_ram(Subject& subject, Context& context) {
  const unsigned count = context.parameters.nr_pages;
  auto** const pages = static_cast<typename Subject::Page**>(subject.vmalloc(count * sizeof(void*)));
  if (pages == nullptr) return false;
  unsigned allocated = 0;
  while (allocated < count && (pages[allocated] = subject.alloc_page()) != nullptr) ++allocated;
  bool passed = allocated == count;
  for (unsigned i = 0; passed && i < context.parameters.test_loop_count; ++i) {
    void* const mapped = subject.vm_map_ram(pages, count);
    if (mapped == nullptr) {
      passed = false;
      break;
    }
    touch(mapped, 'a');
    subject.vm_unmap_ram(mapped, count);
  }
  for (unsigned i = 0; i < allocated; ++i) subject.free_page(pages[i]);
  subject.vfree(pages, count * sizeof(void*));
  return passed;
}

template <class Subject>
bool no_block(Subject& subject, Context& context) {
  const std::size_t bytes = context.parameters.nr_pages * kPageSize;
  for (unsigned i = 0; i < context.parameters.test_loop_count; ++i) {
    void* const block = subject.vmalloc(bytes);
    if (block == nullptr) return false;
    touch(block, 0);
    subject.vfree(block, bytes);
  }
  return true;
}

template <class Subject>
bool vrealloc(Subject& subject, Context& context) {
  constexpr std::size_t kSteps[] = {4 * kPageSize, kPageSize, kPageSize / 2, kPageSize};
  for (unsigned i = 0; i < context.parameters.test_loop_count; ++i) {
    void* block = subject.vmalloc(kPageSize);
    std::size_t held = kPageSize;
    if (block == nullptr) return false;
    touch(block, 'a');
    for (const std::size_t bytes : kSteps) {
      void* const moved = subject.vrealloc(block, bytes);
      const bool kept = moved != nullptr && *static_cast<volatile unsigned char*>(moved) == 'a';
      if (moved != nullptr) {
        block = moved;
        held = bytes;
      }
      if (!kept) {
        subject.vfree(block, held);
        return false;
      }
    }
    subject.vfree(block, held);
  }
  return true;
}

// One run of one test that the subject supports; true when it passed.
template <class Subject>
bool run_case(Subject& subject, unsigned test, Context& context) {
  switch (test) {
    case kFixSize: return fix_size(subject, context);
    case kFullFit: return full_fit(subject, context);
    case kLongBusyList: return long_busy_list(subject, context);
    case kRandomSize: return random_size(subject, context);
    case kFixAlign: return fix_align(subject, context);
    case kRandomSizeAlign: return random_size_align(subject, context);
    case kKvfreeRcu1Arg: return kvfree_rcu_1_arg(subject, context);
    case kKvfreeRcu2Arg: return kvfree_rcu_2_arg(subject, context);
    case kNoBlock: return no_block(subject, context);
    default: break;
  }
  if constexpr (Subject::kTestMask == kAllTests) {
    switch (test) {
      case kAlignShift: return align_shift(subject, context);
      case kPcpu: return pcpu(subject, context);
      case kVmMapRam: return vm_map_ram(subject, context);
      case kVrealloc: return vrealloc(subject, context);
      default: break;
    }
  }
  return false;
}

}  // namespace penumbra::bench::vmalloc
