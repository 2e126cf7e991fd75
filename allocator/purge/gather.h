// The ranges of one purge chunk, advised together: the emulation of one TLB flush (memory ruling 12).
//
// Ranges are added in ascending order; those that touch, or are parted only by a guard page of ours, become one.
// submit() advises the memory first (dropped, or left to the kernel to take), then the guards; the shadow of units
// that died follows by drop_shadow(), after the caller has released their counts. All of it is one flush.
//
// zone: nomalloc
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"
#include "runtime/base/config.h"

namespace penumbra::region {

class Gather {
 public:
  // What one process_madvise takes (UIO_MAXIOV).
  static constexpr std::size_t kMaxRanges = 1024;

  struct Outcome {
    bool dropped;  // all memory that was to go is gone
    bool guarded;  // all markers are in place
  };

  void reset() { drop_.count = lazy_.count = guard_.count = 0; }

  void add_drop(AppAddr begin, std::size_t bytes) { drop_.add(begin, bytes); }
  void add_lazy_free(AppAddr begin, std::size_t bytes) { lazy_.add(begin, bytes); }
  void add_guard(AppAddr begin, std::size_t bytes) { guard_.add(begin, bytes); }

  // `batches`: process_madvise works on ourselves (Guards::batches()).
  Outcome submit(bool batches);
  // At most kMaxRanges of shadow, in the same manner. False where some of it could not be dropped.
  static bool drop_shadow(const iovec* ranges, std::size_t count, bool batches);

  bool is_empty() const { return drop_.count + lazy_.count + guard_.count == 0; }
  // Of the ranges added since reset(): pages, guard pages between merged ones included.
  std::size_t ranges() const { return drop_.count + lazy_.count + guard_.count; }
  std::size_t pages() const { return drop_.pages() + lazy_.pages() + guard_.pages(); }

 private:
  struct Ranges {
    std::size_t count;
    iovec at[kMaxRanges];

    void add(AppAddr begin, std::size_t bytes);
    std::size_t pages() const;
  };

  Ranges drop_{};
  Ranges lazy_{};
  Ranges guard_{};
};

}  // namespace penumbra::region
