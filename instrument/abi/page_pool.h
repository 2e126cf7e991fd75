// Small objects of one type out of whole pages, without malloc. Pages are never returned.
//
// Not thread-safe: the owner's lock goes around it. Fresh objects are zero, returned ones as they were left.
//
// zone: nomalloc
#pragma once

#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"

namespace penumbra::abi {

template <class T>
class PagePool {
 public:
  // Null where the kernel has no memory.
  T* take() {
    if (free_ == nullptr && !refill()) return nullptr;
    Cell* const cell = free_;
    free_ = cell->next;
    return &cell->object;
  }

  void give(T* object) {
    auto* const cell = reinterpret_cast<Cell*>(object);
    cell->next = free_;
    free_ = cell;
  }

 private:
  union Cell {
    T object;
    Cell* next;
  };

  bool refill() {
    const os::Result mapped = os::map_anonymous(kPageSize);
    if (!mapped.ok()) return false;
    auto* const cells = mapped.address().template ptr<Cell>();
    for (std::size_t i = 0; i < kPageSize / sizeof(Cell); ++i) give(&cells[i].object);
    return true;
  }

  Cell* free_ = nullptr;
};

}  // namespace penumbra::abi
