// The free ranges of a piece of the span: a red-black tree by address, augmented with the largest range below each
// node, which answers "the lowest range that holds this request" in O(log n).
//
// T1  in-order, ranges ascend and no two touch: insert() merges neighbours.
// T2  largest = max(own pages, largest of both children), in every node.
// T3  red-black: no red node has a red child, every path down has as many black nodes.
//
// Ranges are in pages counted from the span's begin. No lock of its own; the owner's lock covers it.
//
// zone: nomalloc
#pragma once

#include "allocator/region/record.h"

namespace penumbra::region {

class FreeTree {
 public:
  constexpr explicit FreeTree(RecordTable* records = nullptr) : records_(records) {}

  bool is_empty() const { return root_ == kNoHandle; }
  std::uint64_t free_pages() const { return free_pages_; }
  std::uint32_t largest() const { return root_ == kNoHandle ? 0 : at(root_).tree.largest; }

  // Adds [page, page+pages), described by `h`, which must describe nothing else. Records that merging makes
  // superfluous go to `unused`. Needs no memory.
  void insert(Handle h, std::uint32_t page, std::uint32_t pages, RecordCache& unused);

  // First page of the lowest range that has `pages` pages behind its first multiple of `alignment` (in pages, a
  // power of two; `origin` is the span's first page number, so that alignment is of addresses). Ranges of
  // pages+alignment-1, which fit wherever they lie, are tried first, then all (memory ruling 14). False: none.
  bool find(std::uint32_t pages, std::uint32_t alignment, std::uint64_t origin, std::uint32_t& page) const;

  // Takes [page, page+pages), which find() gave, out of its range. `spare` must hold one record (a cut in the middle
  // leaves two ranges); a record that is no longer needed is pushed there.
  void carve(std::uint32_t page, std::uint32_t pages, RecordCache& spare);

  // End of the range that holds this page, or 0 where none does.
  std::uint32_t end_of_range_at(std::uint32_t page) const {
    const Handle h = range_holding(page);
    return h != kNoHandle && page - at(h).page < at(h).pages ? at(h).page + at(h).pages : 0;
  }

  // Calls visit(page, pages) in ascending order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (Handle h = leftmost(root_); h != kNoHandle; h = successor(h)) visit(at(h).page, at(h).pages);
  }

  // T1..T3, and that free_pages() is their sum.
  void validate() const;

 private:
  Record& at(Handle h) const { return (*records_)[h]; }
  std::uint32_t largest_of(Handle h) const { return h == kNoHandle ? 0 : at(h).tree.largest; }
  bool is_red(Handle h) const { return h != kNoHandle && at(h).tree.is_red; }
  Handle leftmost(Handle h) const;
  Handle successor(Handle h) const;
  Handle predecessor(Handle h) const;
  Handle range_holding(std::uint32_t page) const;
  void recompute(Handle h);
  void recompute_upwards(Handle h);
  void rotate(Handle h, bool to_left);
  void replace_child(Handle parent, Handle old_child, Handle new_child);
  void link(Handle h);
  void unlink(Handle h);
  void balance_insert(Handle h);
  void balance_erase(Handle h, Handle parent);
  bool find_exact(Handle h, std::uint32_t pages, std::uint32_t alignment, std::uint64_t origin,
                  std::uint32_t& page) const;
  int validate_below(Handle h) const;

  RecordTable* records_;
  Handle root_ = kNoHandle;
  std::uint64_t free_pages_ = 0;
};

}  // namespace penumbra::region
