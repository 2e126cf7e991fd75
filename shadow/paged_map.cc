#include "shadow/paged_map.h"

#include <sys/mman.h>

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/raw_memory.h"

namespace penumbra::shadow {
namespace {

// In the file's read-only part: a write into it is a fault at the place of the mistake.
alignas(kPageSize) constexpr std::uint8_t kEarlyPage[kPageSize] = {};

constinit thread_local SoftTlb t_tlb;

// Leaf tables beside those of the span: memory of programs lies in some dozen places, each of which needs two.
constexpr std::uint32_t kSpareTables = 2048;
// Application bytes of one leaf table.
constexpr std::size_t kLeafBytes = std::size_t{1024} * kUnitSize;

}  // namespace

constinit PagedMap internal::g_paged_map;

SoftTlb& PagedMap::thread_tlb() {
  return t_tlb;
}

const std::uint8_t* PagedMap::early_page() {
  return kEarlyPage;
}

os::Result PagedMap::init(std::uint32_t pages) {
  PENUMBRA_CHECK(!is_initialized());
  const os::Result roots = os::map_noreserve(sizeof(Roots));
  if (!roots.ok()) return roots;
  const auto tables = static_cast<std::uint32_t>(pages * kUnitSize / kLeafBytes) + kSpareTables;
  os::Result made = tables_.init(tables, sizeof(Table));
  if (made.ok()) made = pages_.init(pages);
  if (!made.ok()) {
    tables_.destroy();
    os::unmap(roots.address(), round_up(sizeof(Roots), kPageSize)).ignore();
    return made;
  }
  roots_ = roots.address().ptr<Roots>();
  for (Entry& entry : roots_->top) {
    entry.store(reinterpret_cast<std::uint8_t*>(&roots_->early_middle), std::memory_order_relaxed);
  }
  for (Entry& entry : roots_->early_middle.at) {
    entry.store(reinterpret_cast<std::uint8_t*>(&roots_->early_leaf), std::memory_order_relaxed);
  }
  for (Entry& entry : roots_->early_leaf.at) {
    entry.store(const_cast<std::uint8_t*>(kEarlyPage), std::memory_order_relaxed);
  }
  return os::Result(0);
}

void PagedMap::destroy() {
  if (!is_initialized()) return;
  // Translations that threads remember are of this generation or older ones.
  tlb_.flush(0, 0);
  os::unmap(AppAddr(roots_), round_up(sizeof(Roots), kPageSize)).ignore();
  tables_.destroy();
  pages_.destroy();
  missed_.store(0, std::memory_order_relaxed);
  roots_ = nullptr;
}

// The table behind `entry`; a new one, all of whose entries name `entries_name`, where that is the early one still.
PagedMap::Table* PagedMap::own_table(Entry& entry, Table* early, std::uint8_t* entries_name) {
  auto* const before = reinterpret_cast<std::uint8_t*>(early);
  std::uint8_t* now = entry.load(std::memory_order_acquire);
  if (now == before) {
    std::uint8_t* const fresh = tables_.take();
    if (fresh == nullptr) return nullptr;
    for (Entry& one : reinterpret_cast<Table*>(fresh)->at) one.store(entries_name, std::memory_order_relaxed);
    if (entry.compare_exchange_strong(now, fresh, std::memory_order_acq_rel)) {
      now = fresh;
    } else {
      tables_.give_back(fresh);
    }
  }
  return reinterpret_cast<Table*>(now);
}

// The leaf entry of a's unit, in a table of its own; null where no table is left.
PagedMap::Entry* PagedMap::own_entry(AppAddr a) {
  const std::size_t unit = a.value / kUnitSize;
  auto* const early_leaf = reinterpret_cast<std::uint8_t*>(&roots_->early_leaf);
  Table* const middle = own_table(roots_->top[unit >> (2 * kTableBits)], &roots_->early_middle, early_leaf);
  if (middle == nullptr) return nullptr;
  Table* const leaf = own_table(middle->at[(unit >> kTableBits) & (kTableEntries - 1)], &roots_->early_leaf,
                                const_cast<std::uint8_t*>(kEarlyPage));
  return leaf == nullptr ? nullptr : &leaf->at[unit & (kTableEntries - 1)];
}

// The page of a's unit. A new one reads `fresh_value` everywhere (P3). None where none is left.
PagedMap::Published PagedMap::publish(AppAddr a, std::uint8_t fresh_value) {
  Entry* const entry = own_entry(a);
  if (entry == nullptr) return {};
  std::uint8_t* now = entry->load(std::memory_order_acquire);
  if (!is_early(now)) [[likely]]
    return {now, false};
  std::uint8_t* const fresh = pages_.take();
  if (fresh == nullptr) return {};
  raw_set(fresh, fresh_value, kPageSize);
  if (entry->compare_exchange_strong(now, fresh, std::memory_order_acq_rel)) return {fresh, true};
  pages_.give_back(fresh);
  return {now, false};
}

std::uint8_t* PagedMap::page_of(AppAddr unit) const {
  const std::uint8_t* const page = walk(unit.value / kUnitSize);
  return is_early(page) ? nullptr : const_cast<std::uint8_t*>(page);
}

AppAddr PagedMap::early_until(AppAddr a) const {
  const std::size_t unit = a.value / kUnitSize;
  const Table* const middle = table_at(roots_->top[unit >> (2 * kTableBits)]);
  if (middle == &roots_->early_middle)
    return AppAddr(round_down(a.value, kLeafBytes * kTableEntries)) + kLeafBytes * kTableEntries;
  const Table* const leaf = table_at(middle->at[(unit >> kTableBits) & (kTableEntries - 1)]);
  return leaf == &roots_->early_leaf ? AppAddr(round_down(a.value, kLeafBytes)) + kLeafBytes : a;
}

bool PagedMap::set(AppAddr begin, std::size_t granules, std::uint8_t value) {
  bool all = true;
  while (granules > 0) {
    const std::size_t first = index_in_page(begin);
    const std::size_t here = std::min(granules, kPageSize - first);
    // What reads 0 everywhere needs no page to read 0.
    std::uint8_t* const page = value == 0 ? page_of(begin) : publish(begin, 0).page;
    if (page != nullptr) {
      raw_set(page + first, value, here);
    } else if (value != 0) {
      missed_.fetch_add(here, std::memory_order_relaxed);
      all = false;
    }
    begin = begin + here * kGranuleSize;
    granules -= here;
  }
  return all;
}

void PagedMap::clear(AppAddr begin, AppAddr end) {
  while (begin < end) {
    if (const AppAddr next = early_until(begin); next != begin) {
      begin = next;
      continue;
    }
    const std::size_t first = index_in_page(begin);
    const std::size_t here = std::min<std::size_t>((end - begin) >> kGranuleShift, kPageSize - first);
    if (here == 0) return;
    if (std::uint8_t* const page = page_of(begin); page != nullptr) {
      const std::uint8_t* const stop = page + first + here;
      const std::uint8_t* const dirty = raw_first_nonzero(page + first, stop);
      if (dirty != stop && (here != kPageSize || !os::advise(AppAddr(page), kPageSize, MADV_DONTNEED).ok())) {
        raw_set(const_cast<std::uint8_t*>(dirty), 0, static_cast<std::size_t>(stop - dirty));
      }
    }
    begin = begin + here * kGranuleSize;
  }
}

bool PagedMap::fill(AppAddr unit, std::uint8_t value) {
  const Published published = publish(unit, value);
  if (published.page == nullptr) return false;
  // One that was there already: poisoned by hand inside a sparse area.
  if (!published.is_fresh) raw_set(published.page, value, kPageSize);
  return true;
}

void PagedMap::detach(AppAddr unit) {
  Entry* const entry = own_entry(unit);
  PENUMBRA_CHECK(entry != nullptr);
  std::uint8_t* const page = entry->exchange(const_cast<std::uint8_t*>(kEarlyPage), std::memory_order_acq_rel);
  if (!is_early(page)) pages_.retire(page);
}

void PagedMap::flush() {
  tlb_.flush(1, 1);
  pages_.reuse_retired();
}

void PagedMap::validate() const {
  std::uint32_t named = 0;
  for (const Entry& top : roots_->top) {
    const Table* const middle = table_at(top);
    if (middle == &roots_->early_middle) continue;
    PENUMBRA_CHECK(tables_.owns(top.load(std::memory_order_relaxed)));
    for (const Entry& entry : middle->at) {
      const Table* const leaf = table_at(entry);
      if (leaf == &roots_->early_leaf) continue;
      PENUMBRA_CHECK(tables_.owns(entry.load(std::memory_order_relaxed)));
      for (const Entry& one : leaf->at) {
        const std::uint8_t* const page = one.load(std::memory_order_relaxed);
        if (is_early(page)) continue;
        PENUMBRA_CHECK(pages_.owns(page));
        ++named;
      }
    }
  }
  // With every page in at most one of table, retired list and free list, the numbers agree.
  PENUMBRA_CHECK_OP(named, <=, pages_.taken());
}

}  // namespace penumbra::shadow
