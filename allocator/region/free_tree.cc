#include "allocator/region/free_tree.h"

#include <algorithm>

namespace penumbra::region {
namespace {

// First page at or behind `page` whose address is a multiple of the alignment.
std::uint64_t align_page(std::uint64_t page, std::uint32_t alignment, std::uint64_t origin) {
  return round_up(page + origin, alignment) - origin;
}

}  // namespace

Handle FreeTree::leftmost(Handle h) const {
  while (h != kNoHandle && at(h).tree.left != kNoHandle) h = at(h).tree.left;
  return h;
}

Handle FreeTree::successor(Handle h) const {
  if (at(h).tree.right != kNoHandle) return leftmost(at(h).tree.right);
  Handle parent = at(h).tree.parent;
  while (parent != kNoHandle && at(parent).tree.right == h) {
    h = parent;
    parent = at(h).tree.parent;
  }
  return parent;
}

Handle FreeTree::predecessor(Handle h) const {
  if (at(h).tree.left != kNoHandle) {
    h = at(h).tree.left;
    while (at(h).tree.right != kNoHandle) h = at(h).tree.right;
    return h;
  }
  Handle parent = at(h).tree.parent;
  while (parent != kNoHandle && at(parent).tree.left == h) {
    h = parent;
    parent = at(h).tree.parent;
  }
  return parent;
}

// The last range that begins at or before `page`.
Handle FreeTree::range_holding(std::uint32_t page) const {
  Handle best = kNoHandle;
  for (Handle h = root_; h != kNoHandle;) {
    if (at(h).page <= page) {
      best = h;
      h = at(h).tree.right;
    } else {
      h = at(h).tree.left;
    }
  }
  return best;
}

void FreeTree::recompute(Handle h) {
  Record& r = at(h);
  r.tree.largest = std::max({r.pages, largest_of(r.tree.left), largest_of(r.tree.right)});
}

void FreeTree::recompute_upwards(Handle h) {
  while (h != kNoHandle) {
    const std::uint32_t before = at(h).tree.largest;
    recompute(h);
    if (at(h).tree.largest == before) return;
    h = at(h).tree.parent;
  }
}

void FreeTree::replace_child(Handle parent, Handle old_child, Handle new_child) {
  if (parent == kNoHandle) {
    root_ = new_child;
  } else if (at(parent).tree.left == old_child) {
    at(parent).tree.left = new_child;
  } else {
    at(parent).tree.right = new_child;
  }
  if (new_child != kNoHandle) at(new_child).tree.parent = parent;
}

void FreeTree::rotate(Handle h, bool to_left) {
  Record& down = at(h);
  const Handle up = to_left ? down.tree.right : down.tree.left;
  Record& rising = at(up);
  const Handle inner = to_left ? rising.tree.left : rising.tree.right;
  replace_child(down.tree.parent, h, up);
  (to_left ? down.tree.right : down.tree.left) = inner;
  if (inner != kNoHandle) at(inner).tree.parent = h;
  (to_left ? rising.tree.left : rising.tree.right) = h;
  down.tree.parent = up;
  rising.tree.largest = down.tree.largest;
  recompute(h);
}

void FreeTree::link(Handle h) {
  Record& r = at(h);
  r.tree = {kNoHandle, kNoHandle, kNoHandle, r.pages, true};
  Handle parent = kNoHandle;
  for (Handle below = root_; below != kNoHandle;) {
    parent = below;
    below = r.page < at(below).page ? at(below).tree.left : at(below).tree.right;
  }
  r.tree.parent = parent;
  if (parent == kNoHandle) {
    root_ = h;
  } else {
    (r.page < at(parent).page ? at(parent).tree.left : at(parent).tree.right) = h;
    recompute_upwards(parent);
  }
  balance_insert(h);
}

void FreeTree::balance_insert(Handle h) {
  while (is_red(at(h).tree.parent)) {
    Handle parent = at(h).tree.parent;
    const Handle grand = at(parent).tree.parent;
    const bool parent_is_left = at(grand).tree.left == parent;
    const Handle uncle = parent_is_left ? at(grand).tree.right : at(grand).tree.left;
    if (is_red(uncle)) {
      at(parent).tree.is_red = at(uncle).tree.is_red = false;
      at(grand).tree.is_red = true;
      h = grand;
      continue;
    }
    if ((at(parent).tree.left == h) != parent_is_left) {
      rotate(parent, parent_is_left);
      h = parent;
      parent = at(h).tree.parent;
    }
    at(parent).tree.is_red = false;
    at(grand).tree.is_red = true;
    rotate(grand, !parent_is_left);
  }
  at(root_).tree.is_red = false;
}

void FreeTree::unlink(Handle h) {
  Record& r = at(h);
  Handle child;   // takes the place that is removed
  Handle parent;  // of that place
  bool removed_red;
  if (r.tree.left == kNoHandle || r.tree.right == kNoHandle) {
    child = r.tree.left != kNoHandle ? r.tree.left : r.tree.right;
    parent = r.tree.parent;
    removed_red = r.tree.is_red;
    replace_child(parent, h, child);
  } else {
    // The successor leaves its place and takes over ours, with our colour.
    const Handle heir = leftmost(r.tree.right);
    Record& s = at(heir);
    child = s.tree.right;
    parent = s.tree.parent;
    removed_red = s.tree.is_red;
    replace_child(parent, heir, child);
    if (parent == h) parent = heir;
    replace_child(r.tree.parent, h, heir);
    s.tree.left = r.tree.left;
    if (s.tree.left != kNoHandle) at(s.tree.left).tree.parent = heir;
    s.tree.right = r.tree.right;
    if (s.tree.right != kNoHandle) at(s.tree.right).tree.parent = heir;
    s.tree.is_red = r.tree.is_red;
  }
  for (Handle up = parent; up != kNoHandle; up = at(up).tree.parent) recompute(up);
  if (!removed_red) balance_erase(child, parent);
}

void FreeTree::balance_erase(Handle h, Handle parent) {
  // The subtree of h (perhaps empty), below parent, is one black node short.
  while (h != root_ && !is_red(h)) {
    const bool h_is_left = at(parent).tree.left == h;
    Handle sibling = h_is_left ? at(parent).tree.right : at(parent).tree.left;
    if (is_red(sibling)) {
      at(sibling).tree.is_red = false;
      at(parent).tree.is_red = true;
      rotate(parent, h_is_left);
      sibling = h_is_left ? at(parent).tree.right : at(parent).tree.left;
    }
    const Handle near = h_is_left ? at(sibling).tree.left : at(sibling).tree.right;
    Handle far = h_is_left ? at(sibling).tree.right : at(sibling).tree.left;
    if (!is_red(near) && !is_red(far)) {
      at(sibling).tree.is_red = true;
      h = parent;
      parent = at(h).tree.parent;
      continue;
    }
    if (!is_red(far)) {
      at(near).tree.is_red = false;
      at(sibling).tree.is_red = true;
      rotate(sibling, !h_is_left);
      far = sibling;
      sibling = near;
    }
    at(sibling).tree.is_red = at(parent).tree.is_red;
    at(parent).tree.is_red = false;
    at(far).tree.is_red = false;
    rotate(parent, h_is_left);
    return;
  }
  if (h != kNoHandle) at(h).tree.is_red = false;
}

void FreeTree::insert(Handle h, std::uint32_t page, std::uint32_t pages, RecordCache& unused) {
  PENUMBRA_DCHECK(pages > 0);
  free_pages_ += pages;
  const Handle before = range_holding(page);
  const Handle after = before == kNoHandle ? leftmost(root_) : successor(before);
  PENUMBRA_CHECK(before == kNoHandle || at(before).page + at(before).pages <= page);
  PENUMBRA_CHECK(after == kNoHandle || page + pages <= at(after).page);
  const bool joins_before = before != kNoHandle && at(before).page + at(before).pages == page;
  const bool joins_after = after != kNoHandle && page + pages == at(after).page;
  if (joins_before) {
    at(before).pages += pages;
    if (joins_after) {
      const std::uint32_t more = at(after).pages;
      unlink(after);
      unused.push(*records_, after);
      at(before).pages += more;
    }
    recompute_upwards(before);
    unused.push(*records_, h);
    return;
  }
  if (joins_after) {
    // Order is kept: nothing lies between the new begin and the old one.
    at(after).page = page;
    at(after).pages += pages;
    recompute_upwards(after);
    unused.push(*records_, h);
    return;
  }
  Record& r = at(h);
  r.page = page;
  r.pages = pages;
  r.state.store(RecordState::kFreeRange, std::memory_order_relaxed);
  link(h);
}

bool FreeTree::find(std::uint32_t pages, std::uint32_t alignment, std::uint64_t origin, std::uint32_t& page) const {
  const std::uint64_t sure = std::uint64_t{pages} + alignment - 1;
  if (largest() >= sure) {
    Handle h = root_;
    for (;;) {
      if (largest_of(at(h).tree.left) >= sure) {
        h = at(h).tree.left;
      } else if (at(h).pages >= sure) {
        page = static_cast<std::uint32_t>(align_page(at(h).page, alignment, origin));
        return true;
      } else {
        h = at(h).tree.right;
      }
    }
  }
  return alignment > 1 && find_exact(root_, pages, alignment, origin, page);
}

// Subtrees without a range of `pages` are not entered; what is left may be walked whole, but only when no range is
// large enough to fit by size alone. Depth: at most 2 log2(2^29), from T3.
bool FreeTree::find_exact(Handle h, std::uint32_t pages, std::uint32_t alignment, std::uint64_t origin,
                          std::uint32_t& page) const {
  if (largest_of(h) < pages) return false;
  if (find_exact(at(h).tree.left, pages, alignment, origin, page)) return true;
  const std::uint64_t begin = align_page(at(h).page, alignment, origin);
  if (begin + pages <= std::uint64_t{at(h).page} + at(h).pages) {
    page = static_cast<std::uint32_t>(begin);
    return true;
  }
  return find_exact(at(h).tree.right, pages, alignment, origin, page);
}

void FreeTree::carve(std::uint32_t page, std::uint32_t pages, RecordCache& spare) {
  const Handle h = range_holding(page);
  PENUMBRA_CHECK(h != kNoHandle && page + pages <= at(h).page + at(h).pages);
  free_pages_ -= pages;
  Record& r = at(h);
  const std::uint32_t left = page - r.page;
  const std::uint32_t right = r.page + r.pages - (page + pages);
  if (left == 0 && right == 0) {
    unlink(h);
    spare.push(*records_, h);
    return;
  }
  r.pages = left;
  if (left == 0) {
    r.page = page + pages;
    r.pages = right;
  }
  recompute_upwards(h);
  if (left == 0 || right == 0) return;
  const Handle rest = spare.pop(*records_);
  at(rest).page = page + pages;
  at(rest).pages = right;
  at(rest).state.store(RecordState::kFreeRange, std::memory_order_relaxed);
  link(rest);
}

int FreeTree::validate_below(Handle h) const {
  if (h == kNoHandle) return 1;
  const Record& r = at(h);
  PENUMBRA_CHECK(r.state.load(std::memory_order_relaxed) == RecordState::kFreeRange);
  for (const Handle child : {r.tree.left, r.tree.right}) {
    if (child == kNoHandle) continue;
    PENUMBRA_CHECK_OP(at(child).tree.parent, ==, h);
    PENUMBRA_CHECK(!(r.tree.is_red && at(child).tree.is_red));  // T3
  }
  PENUMBRA_CHECK_OP(r.tree.largest, ==,
                    (std::max({r.pages, largest_of(r.tree.left), largest_of(r.tree.right)})));  // T2
  const int left = validate_below(r.tree.left);
  PENUMBRA_CHECK_OP(left, ==, validate_below(r.tree.right));  // T3
  return left + (r.tree.is_red ? 0 : 1);
}

void FreeTree::validate() const {
  PENUMBRA_CHECK(!is_red(root_));
  validate_below(root_);
  std::uint64_t sum = 0;
  std::uint64_t end = 0;
  bool first = true;
  for_each([&](std::uint32_t page, std::uint32_t pages) {
    PENUMBRA_CHECK(first || page > end);  // T1
    first = false;
    end = std::uint64_t{page} + pages;
    sum += pages;
  });
  PENUMBRA_CHECK_OP(sum, ==, free_pages_);
}

}  // namespace penumbra::region
