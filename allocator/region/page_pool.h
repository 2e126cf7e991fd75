// Pages that can be mapped more than once: what vmap() and vm_map_ram() take, the kernel's struct page.
//
// Memory comes in chunks of 256 pages: a memfd mapped over an area of the region allocator, whose descriptor
// is closed at once (later mappings are aliases of the first, os::alias). A page's own address lies in that
// area, so its shadow is the area's: a free page is "freed large object" (KASAN's page_free), a taken one
// accessible.
//
//     descriptors   | slot 0 | slot 1 | ...     one page each, reserved once, opened on first use
//     slot          | begin, bitmap, Page[256] |
//     Page          a handle; its place in the array is its number in the chunk
//
// I1  a slot with a begin owns a live area of kChunkPages pages with a shared mapping over all of it.
// I2  a set bit of `used` is a page that was handed out; `used_pages` counts the bits.
// I3  the shadow of every page without a set bit is kLargeFreed.
//
// A forked child shares the pages it inherits, as it shares every MAP_SHARED mapping, but takes none from
// inherited chunks and gives none back to them: parent and child would hand out the same memory.
//
// zone: nomalloc
#pragma once

#include "allocator/region/regions.h"
#include "runtime/base/check.h"
#include "runtime/base/locks.h"
#include "runtime/base/os_linux.h"
#include "shadow/encoding.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace penumbra::region {

// Handle of a page, and of the first page of a larger block.
struct Page {
  std::uint8_t is_first = 0;  // a block begins here
  std::uint8_t order = 0;     // of that block
  std::uint8_t is_gone = 0;   // an inherited block that this process has freed
};

// Regions is a RegionAllocator.
template <class Regions>
class PagePool {
 public:
  static constexpr std::size_t kChunkPages = 256;
  static constexpr unsigned kMaxOrder = 8;  // the whole chunk
  static constexpr std::size_t kChunkBytes = kChunkPages * kPageSize;

  constexpr explicit PagePool(Regions& regions) : regions_(regions) {}

  // 2^order pages, contiguous and naturally aligned within their chunk; contents are whatever was there. Null
  // with EINVAL for an order above kMaxOrder, ENOMEM (or what the kernel said) when there is no memory.
  Page* allocate(unsigned order);
  FreeVerdict free(Page* page, unsigned order);

  // Where the page's memory is always mapped. Null for what is no page that was handed out.
  AppAddr address(const Page* page);

  // Adjacent in memory, so that one mapping can cover both.
  static bool are_adjacent(const Page* first, const Page* second) {
    return second == first + 1 && slot_of(first) == slot_of(second);
  }

  // The page whose own mapping holds `a`, null if none does.
  Page* page_at(AppAddr a);

  // Gives every chunk back in which no page is taken.
  void trim();

  void fork_prepare() { lock_.lock(); }

  void fork_parent() { lock_.unlock(); }

  void fork_child();

  std::size_t taken_pages() const { return taken_pages_; }

  void validate() {
    LockGuard guard(lock_);
    validate_locked();
  }

 private:
  void validate_locked();

  // Where the build asks for it (meson -Dvalidate), under the lock.
  void validate_at_op_locked() {
    if constexpr (PENUMBRA_VALIDATE >= 2) validate_locked();
  }

  void validate_at_checkpoint_locked() {
    if constexpr (PENUMBRA_VALIDATE >= 1) validate_locked();
  }

  static constexpr std::size_t kWordBits = 64;
  static constexpr std::size_t kMaxSlots = 16384;

  struct Slot {
    AppAddr begin;
    std::uint64_t used[kChunkPages / kWordBits];
    std::uint32_t used_pages;
    bool inherited;
    Page pages[kChunkPages];
  };

  static_assert(sizeof(Slot) <= kPageSize);

  static Slot* slot_of(const Page* page) {
    return reinterpret_cast<Slot*>(round_down(reinterpret_cast<std::uintptr_t>(page), kPageSize));
  }

  Slot* slot(std::size_t index) const { return (descriptors_ + index * kPageSize).template ptr<Slot>(); }

  static std::uint64_t mask_of(std::size_t first, std::size_t pages) {
    return (pages == kWordBits ? ~std::uint64_t{0} : (std::uint64_t{1} << pages) - 1) << (first % kWordBits);
  }

  static bool is_free(const Slot& slot, std::size_t first, std::size_t pages);
  static void mark(Slot& slot, std::size_t first, std::size_t pages, bool used);

  // The descriptor behind a handle, if the handle is one of ours and its chunk lives.
  Slot* find_locked(const Page* page) const;
  Page* take_locked(Slot& slot, unsigned order);
  Slot* add_chunk_locked(int& error);
  bool open_descriptors_locked(int& error);
  static int map_shared(AppAddr begin);
  bool has_other_empty_locked(const Slot& but) const;
  void remove_chunk_locked(Slot& slot);

  Regions& regions_;
  Mutex lock_;
  AppAddr descriptors_;
  std::size_t slots_ = 0;  // descriptors that were opened
  std::size_t taken_pages_ = 0;
};

template <class Regions>
bool PagePool<Regions>::is_free(const Slot& slot, std::size_t first, std::size_t pages) {
  for (std::size_t page = first; page < first + pages; page += kWordBits) {
    if ((slot.used[page / kWordBits] & mask_of(page, std::min(pages, kWordBits))) != 0) return false;
  }
  return true;
}

template <class Regions>
void PagePool<Regions>::mark(Slot& slot, std::size_t first, std::size_t pages, bool used) {
  for (std::size_t page = first; page < first + pages; page += kWordBits) {
    const std::uint64_t mask = mask_of(page, std::min(pages, kWordBits));
    std::uint64_t& word = slot.used[page / kWordBits];
    word = used ? word | mask : word & ~mask;
  }
}

template <class Regions>
Page* PagePool<Regions>::allocate(unsigned order) {
  if (order > kMaxOrder) {
    errno = EINVAL;
    return nullptr;
  }
  LockGuard guard(lock_);
  for (std::size_t i = 0; i < slots_; ++i) {
    Slot& candidate = *slot(i);
    if (candidate.begin.is_null() || candidate.inherited) continue;
    if (Page* const page = take_locked(candidate, order)) return page;
  }
  int error = 0;
  Slot* const fresh = add_chunk_locked(error);
  if (fresh == nullptr) {
    errno = error;
    return nullptr;
  }
  return take_locked(*fresh, order);
}

template <class Regions>
Page* PagePool<Regions>::take_locked(Slot& slot, unsigned order) {
  const std::size_t pages = std::size_t{1} << order;
  if (slot.used_pages + pages > kChunkPages) return nullptr;
  for (std::size_t first = 0; first < kChunkPages; first += pages) {
    if (!is_free(slot, first, pages)) continue;
    mark(slot, first, pages, true);
    slot.used_pages += static_cast<std::uint32_t>(pages);
    taken_pages_ += pages;
    slot.pages[first] = {1, static_cast<std::uint8_t>(order), 0};
    regions_.shadow().unpoison(slot.begin + first * kPageSize, pages * kPageSize);
    return &slot.pages[first];
  }
  return nullptr;
}

template <class Regions>
bool PagePool<Regions>::open_descriptors_locked(int& error) {
  if (slots_ == kMaxSlots) {
    error = ENOMEM;
    return false;
  }
  if (descriptors_.is_null()) {
    const os::Result space = os::reserve(AppAddr(), kMaxSlots * kPageSize);
    if (!space.ok()) {
      error = space.error();
      return false;
    }
    descriptors_ = space.address();
  }
  const os::Result opened = os::protect(descriptors_ + slots_ * kPageSize, kPageSize, PROT_READ | PROT_WRITE);
  if (!opened.ok()) {
    error = opened.error();
    return false;
  }
  ++slots_;  // zero: no chunk yet
  return true;
}

// 0 or the errno of what failed; then nothing of it is left but a possible hole where `begin` was.
template <class Regions>
int PagePool<Regions>::map_shared(AppAddr begin) {
  const os::Result memory = os::memfd("penumbra-pages", MFD_CLOEXEC);
  if (!memory.ok()) return memory.error();
  const int fd = static_cast<int>(memory.value());
  const os::Result grown = os::truncate(fd, kChunkBytes);
  const os::Result mapped = grown.ok() ? os::map_file_at(begin, kChunkBytes, PROT_READ | PROT_WRITE, fd, 0) : grown;
  os::close(fd).ignore();
  return mapped.error();
}

template <class Regions>
auto PagePool<Regions>::add_chunk_locked(int& error) -> Slot* {
  Slot* target = nullptr;
  for (std::size_t i = 0; i < slots_ && target == nullptr; ++i) {
    if (slot(i)->begin.is_null()) target = slot(i);
  }
  if (target == nullptr) {
    if (!open_descriptors_locked(error)) return nullptr;
    target = slot(slots_ - 1);
  }
  Request request;
  request.bytes = kChunkBytes;
  request.kind = AreaKind::kPages;
  const AppAddr begin = regions_.allocate(request);
  if (begin.is_null()) {
    error = ENOMEM;
    return nullptr;
  }
  error = map_shared(begin);
  if (error != 0) {
    regions_.free(begin, kNoStack);
    return nullptr;
  }
  regions_.shadow().poison(begin, kChunkBytes, shadow::ShadowTag::kLargeFreed);
  *target = Slot{};
  target->begin = begin;
  return target;
}

template <class Regions>
auto PagePool<Regions>::find_locked(const Page* page) const -> Slot* {
  const AppAddr at(page);
  if (at < descriptors_ || at >= descriptors_ + slots_ * kPageSize) return nullptr;
  Slot* const slot = slot_of(page);
  const std::ptrdiff_t offset = reinterpret_cast<const char*>(page) - reinterpret_cast<const char*>(slot->pages);
  const bool is_handle =
      offset >= 0 && offset % static_cast<std::ptrdiff_t>(sizeof(Page)) == 0 &&
      offset / static_cast<std::ptrdiff_t>(sizeof(Page)) < static_cast<std::ptrdiff_t>(kChunkPages);
  return is_handle && !slot->begin.is_null() ? slot : nullptr;
}

template <class Regions>
FreeVerdict PagePool<Regions>::free(Page* page, unsigned order) {
  LockGuard guard(lock_);
  Slot* const slot = find_locked(page);
  if (slot == nullptr || order > kMaxOrder) return FreeVerdict::kForeign;
  const auto first = static_cast<std::size_t>(page - slot->pages);
  if (is_free(*slot, first, 1) || page->is_gone != 0) return FreeVerdict::kDoubleFree;
  if (page->is_first == 0 || page->order != order) return FreeVerdict::kInterior;
  const std::size_t pages = std::size_t{1} << order;
  regions_.shadow().poison(slot->begin + first * kPageSize, pages * kPageSize, shadow::ShadowTag::kLargeFreed);
  if (slot->inherited) {
    page->is_gone = 1;
    return FreeVerdict::kFreed;
  }
  *page = {};
  mark(*slot, first, pages, false);
  slot->used_pages -= static_cast<std::uint32_t>(pages);
  taken_pages_ -= pages;
  if (slot->used_pages == 0 && has_other_empty_locked(*slot)) remove_chunk_locked(*slot);
  validate_at_op_locked();
  return FreeVerdict::kFreed;
}

template <class Regions>
bool PagePool<Regions>::has_other_empty_locked(const Slot& but) const {
  for (std::size_t i = 0; i < slots_; ++i) {
    const Slot& other = *slot(i);
    if (&other != &but && !other.begin.is_null() && !other.inherited && other.used_pages == 0) return true;
  }
  return false;
}

template <class Regions>
void PagePool<Regions>::remove_chunk_locked(Slot& slot) {
  // Drops the memory itself, whatever mappings of it are left. The purge replaces them.
  os::advise(slot.begin, kChunkBytes, MADV_REMOVE).ignore();
  regions_.free(slot.begin, kNoStack);
  slot.begin = AppAddr();
}

template <class Regions>
void PagePool<Regions>::trim() {
  LockGuard guard(lock_);
  for (std::size_t i = 0; i < slots_; ++i) {
    Slot& candidate = *slot(i);
    if (!candidate.begin.is_null() && !candidate.inherited && candidate.used_pages == 0)
      remove_chunk_locked(candidate);
  }
  validate_at_checkpoint_locked();
}

template <class Regions>
AppAddr PagePool<Regions>::address(const Page* page) {
  LockGuard guard(lock_);
  const Slot* const slot = find_locked(page);
  if (slot == nullptr) return AppAddr();
  const auto number = static_cast<std::size_t>(page - slot->pages);
  return is_free(*slot, number, 1) ? AppAddr() : slot->begin + number * kPageSize;
}

template <class Regions>
Page* PagePool<Regions>::page_at(AppAddr a) {
  LockGuard guard(lock_);
  for (std::size_t i = 0; i < slots_; ++i) {
    Slot& candidate = *slot(i);
    if (candidate.begin.is_null() || a < candidate.begin || a >= candidate.begin + kChunkBytes) continue;
    const std::size_t number = (a - candidate.begin) / kPageSize;
    return is_free(candidate, number, 1) ? nullptr : &candidate.pages[number];
  }
  return nullptr;
}

template <class Regions>
void PagePool<Regions>::fork_child() {
  lock_.reset_after_fork();
  for (std::size_t i = 0; i < slots_; ++i) slot(i)->inherited = true;
  taken_pages_ = 0;
}

template <class Regions>
void PagePool<Regions>::validate_locked() {
  std::size_t taken = 0;
  for (std::size_t i = 0; i < slots_; ++i) {
    const Slot& s = *slot(i);
    if (s.begin.is_null()) continue;
    PENUMBRA_CHECK_OP(regions_.requested_bytes(s.begin), ==, kChunkBytes);  // I1
    std::size_t used = 0;
    for (const std::uint64_t word : s.used) used += static_cast<std::size_t>(__builtin_popcountll(word));
    PENUMBRA_CHECK_OP(used, ==, s.used_pages);  // I2
    if (!s.inherited) taken += used;
  }
  PENUMBRA_CHECK_OP(taken, ==, taken_pages_);
}

}  // namespace penumbra::region
