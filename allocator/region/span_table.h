// Whose is this part of the span? A pointer for every aligned part, found with one load.
//
// Address space for all parts is taken on first use and never given back; only places that were written take
// memory.
//
// zone: nomalloc
#pragma once

#include "runtime/base/address.h"
#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"

#include <atomic>
#include <cstddef>

namespace penumbra::region {

template <class Owner>
class SpanTable {
 public:
  // Idempotent, but one at a time. False when there is no address space.
  bool open(const AppRange& span, std::size_t part_bytes) {
    if (is_open()) return true;
    const os::Result memory =
        os::map_noreserve(round_up((span.bytes() / part_bytes + 1) * sizeof(Owner*), kPageSize));
    if (!memory.ok()) return false;
    span_ = span;
    part_bytes_ = part_bytes;
    places_.store(memory.address().ptr<std::atomic<Owner*>>(), std::memory_order_release);
    return true;
  }

  bool is_open() const { return places_.load(std::memory_order_acquire) != nullptr; }

  // Null outside the span, for a part that nobody owns, and while the table is not open.
  Owner* owner(AppAddr a) const {
    std::atomic<Owner*>* const places = places_.load(std::memory_order_acquire);
    return places != nullptr && span_.contains(a) ? places[part_of(a)].load(std::memory_order_acquire) : nullptr;
  }

  // The table is open and `a` in the span.
  void set_owner(AppAddr a, Owner* owner) {
    places_.load(std::memory_order_relaxed)[part_of(a)].store(owner, std::memory_order_release);
  }

 private:
  std::size_t part_of(AppAddr a) const { return (a - span_.begin) / part_bytes_; }

  std::atomic<std::atomic<Owner*>*> places_{nullptr};
  AppRange span_;
  std::size_t part_bytes_ = 1;
};

}  // namespace penumbra::region
