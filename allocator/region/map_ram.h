// vm_map_ram(): short-lived mappings of up to 64 pages, cut from blocks that each CPU has for itself.
//
// A block is one area of 256 pages. Mappings are cut from it front to back and never reused; unmapping
// poisons at once and leaves the memory mapped (the kernel leaves the TLB stale as long). When the last page
// of a block is dirty, the area is freed and the purge takes all its mappings down with one call: the same
// trade as the kernel's vmap blocks.
//
//     | freed | mapped | freed | mapped |  never given out  |guard|
//     0                                 ^ next              256
//
// B1  the shadow of the block is accessible exactly where a mapping is live; elsewhere it is "freed" before
//     next, "invalid" behind.
// B2  length[i] is the number of pages of the mapping that begins at page i, kGone if it was unmapped,
//     else 0.
// B3  dirty = pages of unmapped mappings, plus what a retired block had left. A block whose dirty is 256
//     is in the hands of the one who made it so, and of nobody else.
//
// Larger mappings are vmap areas.
//
// zone: nomalloc
#pragma once

#include "allocator/region/page_pool.h"
#include "allocator/region/regions.h"
#include "allocator/region/span_table.h"
#include "allocator/region/vmap.h"
#include "runtime/base/locks.h"
#include "runtime/base/os_linux.h"
#include "shadow/encoding.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>

namespace penumbra::region {

template <class Regions>
class MapRam {
 public:
  static constexpr std::size_t kMaxPages = 64;  // VMAP_MAX_ALLOC
  static constexpr std::size_t kBlockPages = 256;
  static constexpr std::size_t kBlockBytes = kBlockPages * kPageSize;

  constexpr MapRam(Regions& regions, PagePool<Regions>& pool, VmapAreas<Regions>& vmaps)
      : regions_(regions), pool_(pool), vmaps_(vmaps) {}

  // Null with EINVAL or ENOMEM.
  AppAddr map(Page* const* pages, std::size_t count, StackId stack);
  // `count` is what map() was given; another one is kInterior.
  FreeVerdict unmap(AppAddr begin, std::size_t count, StackId stack);

  // Retires every CPU's block: those without a live mapping go back at once, the others with their last
  // unmap().
  void trim();
  void fork_prepare();
  void fork_parent();
  void fork_child();

  // Blocks that hold address space.
  std::size_t blocks() const { return blocks_.load(std::memory_order_relaxed); }

 private:
  static constexpr unsigned kCpus = 64;  // CPUs beyond share
  static constexpr std::uint8_t kGone = 0xff;

  struct Block {
    AppAddr begin;
    std::uint16_t next = 0;  // under the lock of its CPU
    std::atomic<std::uint16_t> dirty{0};
    Block* link = nullptr;  // in the list of unused descriptors
    std::atomic<std::uint8_t> length[kBlockPages] = {};
  };

  struct alignas(64) Cpu {
    Mutex lock;
    Block* current = nullptr;
  };

  // What is wrong with unmapping an address that no block holds.
  FreeVerdict refusal(AppAddr a);
  Block* new_descriptor();
  Block* add_block(StackId stack);
  // Adds dirty pages; the one who adds the last gives the block back.
  void make_dirty(Block& block, std::size_t pages, StackId stack);
  void retire_locked(Cpu& cpu, StackId stack);

  Regions& regions_;
  PagePool<Regions>& pool_;
  VmapAreas<Regions>& vmaps_;
  SpanTable<Block> table_;
  std::atomic<std::size_t> blocks_{0};
  Mutex descriptors_lock_;
  Block* unused_descriptors_ = nullptr;
  Cpu cpus_[kCpus];
};

template <class Regions>
auto MapRam<Regions>::new_descriptor() -> Block* {
  LockGuard guard(descriptors_lock_);
  if (!table_.open(regions_.span(), kBlockBytes)) return nullptr;
  if (unused_descriptors_ == nullptr) {
    const os::Result memory = os::map_anonymous(kPageSize);
    if (!memory.ok()) return nullptr;
    Block* const blocks = memory.address().ptr<Block>();
    for (std::size_t i = 0; i < kPageSize / sizeof(Block); ++i) {
      blocks[i].link = unused_descriptors_;
      unused_descriptors_ = &blocks[i];
    }
  }
  Block* const block = unused_descriptors_;
  unused_descriptors_ = block->link;
  return new (block) Block;
}

template <class Regions>
auto MapRam<Regions>::add_block(StackId stack) -> Block* {
  Block* const block = new_descriptor();
  if (block == nullptr) return nullptr;
  Request request;
  request.bytes = kBlockBytes;
  request.alignment = kBlockBytes;
  request.kind = AreaKind::kMapRam;
  request.stack = stack;
  block->begin = regions_.allocate(request);
  if (block->begin.is_null()) {
    LockGuard guard(descriptors_lock_);
    block->link = unused_descriptors_;
    unused_descriptors_ = block;
    return nullptr;
  }
  regions_.shadow().poison(block->begin, kBlockBytes, shadow::ShadowTag::kRegionInvalid);
  table_.set_owner(block->begin, block);
  blocks_.fetch_add(1, std::memory_order_relaxed);
  return block;
}

template <class Regions>
void MapRam<Regions>::make_dirty(Block& block, std::size_t pages, StackId stack) {
  const auto added = static_cast<std::uint16_t>(pages);
  if (block.dirty.fetch_add(added, std::memory_order_acq_rel) + added != kBlockPages) return;
  table_.set_owner(block.begin, nullptr);
  regions_.free(block.begin, stack);
  blocks_.fetch_sub(1, std::memory_order_relaxed);
  LockGuard guard(descriptors_lock_);
  block.link = unused_descriptors_;
  unused_descriptors_ = &block;
}

template <class Regions>
void MapRam<Regions>::retire_locked(Cpu& cpu, StackId stack) {
  Block* const block = cpu.current;
  if (block == nullptr) return;
  cpu.current = nullptr;
  const std::size_t left = kBlockPages - block->next;
  // A full block was given back, or will be, by whoever unmaps its last page.
  if (left != 0) make_dirty(*block, left, stack);
}

template <class Regions>
AppAddr MapRam<Regions>::map(Page* const* pages, std::size_t count, StackId stack) {
  if (count > kMaxPages) return vmaps_.map(pages, count, stack);
  if (count == 0) {
    errno = EINVAL;
    return AppAddr();
  }
  Cpu& cpu = cpus_[os::current_cpu() % kCpus];
  Block* block = nullptr;
  std::size_t first = 0;
  {
    LockGuard guard(cpu.lock);
    if (cpu.current != nullptr && kBlockPages - cpu.current->next < count) retire_locked(cpu, stack);
    if (cpu.current == nullptr) cpu.current = add_block(stack);
    block = cpu.current;
    if (block == nullptr) {
      errno = ENOMEM;
      return AppAddr();
    }
    first = block->next;
    block->next = static_cast<std::uint16_t>(first + count);
    if (block->next == kBlockPages) cpu.current = nullptr;
  }
  const AppAddr begin = block->begin + first * kPageSize;
  if (const int error = alias_pages(pool_, begin, pages, count)) {
    make_dirty(*block, count, stack);
    errno = error;
    return AppAddr();
  }
  regions_.shadow().unpoison(begin, count * kPageSize);
  block->length[first].store(static_cast<std::uint8_t>(count), std::memory_order_release);
  return begin;
}

template <class Regions>
FreeVerdict MapRam<Regions>::unmap(AppAddr begin, std::size_t count, StackId stack) {
  if (count > kMaxPages) return vmaps_.unmap(begin, stack);
  Block* const block = table_.owner(begin);
  if (block == nullptr) return refusal(begin);
  const std::size_t offset = begin - block->begin;
  // Descriptors are never unmapped: one that was given back meanwhile (a double unmap in a race) begins
  // elsewhere.
  if (offset >= kBlockBytes) return FreeVerdict::kDoubleFree;
  if (offset % kPageSize != 0) return FreeVerdict::kInterior;
  std::atomic<std::uint8_t>& length = block->length[offset / kPageSize];
  auto expected = static_cast<std::uint8_t>(count);
  // The claim: of two callers one sees kGone.
  if (count == 0 || !length.compare_exchange_strong(expected, kGone, std::memory_order_acq_rel)) {
    return expected == kGone ? FreeVerdict::kDoubleFree : FreeVerdict::kInterior;
  }
  regions_.shadow().poison(begin, count * kPageSize, shadow::ShadowTag::kRegionFreed);
  make_dirty(*block, count, stack);
  return FreeVerdict::kFreed;
}

template <class Regions>
FreeVerdict MapRam<Regions>::refusal(AppAddr a) {
  AreaInfo info;
  if (!regions_.describe(a, info) || info.kind != AreaKind::kMapRam) return FreeVerdict::kForeign;
  return info.state == AreaState::kLive ? FreeVerdict::kForeign : FreeVerdict::kDoubleFree;
}

template <class Regions>
void MapRam<Regions>::trim() {
  for (Cpu& cpu : cpus_) {
    LockGuard guard(cpu.lock);
    retire_locked(cpu, kNoStack);
  }
}

template <class Regions>
void MapRam<Regions>::fork_prepare() {
  for (Cpu& cpu : cpus_) cpu.lock.lock();
  descriptors_lock_.lock();
}

template <class Regions>
void MapRam<Regions>::fork_parent() {
  descriptors_lock_.unlock();
  for (Cpu& cpu : cpus_) cpu.lock.unlock();
}

template <class Regions>
void MapRam<Regions>::fork_child() {
  descriptors_lock_.reset_after_fork();
  for (Cpu& cpu : cpus_) cpu.lock.reset_after_fork();
}

}  // namespace penumbra::region
