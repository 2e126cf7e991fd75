// The paged shadow map: a page table in software, for processes that cannot have the direct map's 16 TiB.
//
//     address   46........35 34.......25 24......15 14.................0
//                  top 4096     middle      leaf      offset / 8 in the page
//     top -> middle -> leaf -> page of shadow (4 KiB, for one unit of 32 KiB)
//
//     all entries of top    first name the early middle table,
//     all of that           the early leaf table,
//     all of that           the early page, which reads 0 and cannot be written
//
// P1  an entry always names a table or page that can be read: a reader walks without asking.
// P2  tables come from a pool and stay where they are once named; so do pages, but those that detach() takes back.
// P3  a page is published with what it shall read from the first moment on; nothing but the early page is replaced by
//     publishing, so that two who publish agree on whose page it is.
// P4  a page that was taken back belongs to another unit only behind flush(), which every reader notices (tlb.h).
//
// Who writes or detaches pages of the region span holds the unit's state (units.h), and never goes by the software TLB.
// Pages of other memory are never taken back: clear() empties them, and they belong to the same unit for ever. A check
// allocates nothing; the pools are lock-free, so that poisoning works in a signal handler as well. Where they are used up,
// or the kernel opens no more, what should be poisoned stays accessible: missed_poison() counts that, and fill() fails.
//
// There is one in a process, because a thread has one software TLB.
//
// zone: signal-safe (init, destroy, flush: nomalloc)
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/base/os_linux.h"
#include "shadow/encoding.h"
#include "shadow/frames.h"
#include "shadow/tlb.h"

namespace penumbra::shadow {

class PagedMap {
 public:
  constexpr PagedMap() = default;
  PagedMap(const PagedMap&) = delete;
  PagedMap& operator=(const PagedMap&) = delete;

  // Room for `pages` pages of shadow. Takes address space, and memory as it is used. A failure leaves nothing mapped.
  os::Result init(std::uint32_t pages);
  void destroy();
  bool is_initialized() const { return roots_ != nullptr; }

  // -- Reading. Addresses are below kUserAddressEnd.

  // use(page) for the shadow page of a's unit, by the TLB of this thread; see SoftTlb::read() for what `use` may do.
  template <class Use>
  auto read(AppAddr a, Use use) const {
    return thread_tlb().read(
        tlb_, a.value / kUnitSize, [this](std::size_t unit) { return walk(unit); }, use,
        [this](const std::uint8_t* page) { return page != early_page(); });
  }

  // Single bytes without the TLB, by general registers only and without a thread's memory: what rewritten code may call.
  std::uint8_t load(AppAddr a) const {
    return reread<std::uint8_t>(a, [&](const std::uint8_t* page) { return page[index_in_page(a)]; });
  }
  // Eight bytes, of the 64 bytes of memory that begin at the multiple of 64 below `a`.
  std::uint64_t load_block(AppAddr a) const {
    return reread<std::uint64_t>(a, [&](const std::uint8_t* page) {
      std::uint64_t word;
      __builtin_memcpy(&word, page + (index_in_page(a) & ~std::size_t{7}), sizeof word);
      return word;
    });
  }

  // From `a` on up to this address no page was ever published, so that all of its shadow reads 0; `a` itself where one was.
  AppAddr early_until(AppAddr a) const;

  // -- Writing. The range lies below kUserAddressEnd. False: a part of it could not get a page.

  bool set(AppAddr begin, std::size_t granules, std::uint8_t value);
  bool store(AppAddr a, std::uint8_t value) { return set(a, 1, value); }
  // All of [begin, end) reads 0; memory of whole pages goes back to the kernel. Granule aligned.
  void clear(AppAddr begin, AppAddr end);

  // -- Units of the span.

  // The unit's page has `value` everywhere. False where there is none.
  [[nodiscard]] bool fill(AppAddr unit, std::uint8_t value);
  // Its page, or null while the early page stands for it.
  std::uint8_t* page_of(AppAddr unit) const;
  // The early page stands for it from now on; its own is retired. One thread at a time (the purge mutex), like flush().
  void detach(AppAddr unit);
  // Nobody uses detached pages any more: they are free.
  void flush();
  // In a child that skipped the fork hooks: pages that were being detached are lost.
  void repair_after_fork() { pages_.forget_retired(); }

  // Statistics: pages that are in the table or retired, tables, granules that should have been poisoned and were not.
  std::uint32_t pages() const { return pages_.taken(); }
  std::uint32_t tables() const { return tables_.taken(); }
  std::uint64_t missed_poison() const { return missed_.load(std::memory_order_relaxed); }
  std::uint32_t capacity() const { return pages_.capacity(); }

  // P1, and that no page stands in two entries. At rest only.
  void validate() const;

 private:
  static constexpr unsigned kUnitShift = 15;
  static constexpr unsigned kTableBits = 10;
  static constexpr std::size_t kTableEntries = std::size_t{1} << kTableBits;
  static constexpr std::size_t kTopEntries = std::size_t{1} << (47 - kUnitShift - 2 * kTableBits);
  static_assert(std::size_t{1} << kUnitShift == kUnitSize && kTopEntries == 4096);

  using Entry = std::atomic<std::uint8_t*>;
  struct Table {
    Entry at[kTableEntries];
  };
  // What the map begins with.
  struct Roots {
    Entry top[kTopEntries];
    Table early_middle;
    Table early_leaf;
  };
  static_assert(sizeof(Table) == 8192);

  static SoftTlb& thread_tlb();
  static const std::uint8_t* early_page();
  static std::size_t index_in_page(AppAddr a) { return (a.value & (kUnitSize - 1)) >> kGranuleShift; }
  static Table* table_at(const Entry& entry) {
    return reinterpret_cast<Table*>(entry.load(std::memory_order_acquire));
  }
  static bool is_early(const std::uint8_t* page) { return page == early_page(); }

  const std::uint8_t* walk(std::size_t unit) const {
    const Table* const middle = table_at(roots_->top[unit >> (2 * kTableBits)]);
    const Table* const leaf = table_at(middle->at[(unit >> kTableBits) & (kTableEntries - 1)]);
    return leaf->at[unit & (kTableEntries - 1)].load(std::memory_order_acquire);
  }

  template <class Result, class Use>
  Result reread(AppAddr a, Use use) const {
    for (;;) {
      const std::uint64_t generation = tlb_.generation();
      const Result result = use(walk(a.value / kUnitSize));
      std::atomic_thread_fence(std::memory_order_acquire);
      if (tlb_.generation() == generation) [[likely]]
        return result;
    }
  }

  Table* own_table(Entry& entry, Table* early, std::uint8_t* entries_name);
  Entry* own_entry(AppAddr a);
  struct Published {
    std::uint8_t* page = nullptr;
    bool is_fresh = false;
  };
  Published publish(AppAddr a, std::uint8_t fresh_value);

  Roots* roots_ = nullptr;
  FramePool tables_;
  FramePool pages_;
  Tlb tlb_;
  std::atomic<std::uint64_t> missed_{0};
};

namespace internal {
extern PagedMap g_paged_map;  // the process's, when map_kind() says so
}

}  // namespace penumbra::shadow
