// Making memory of the span accessible, and inaccessible again, by what the kernel offers.
//
//     marker    guard markers in the page tables (MADV_GUARD_INSTALL, Linux 6.13): no mapping per guard
//     mprotect  PROT_NONE around every area: two mappings each, so only while mappings are plenty
//     pinned    neither: memory opens in whole units, whose shadow stays populated (UnitMap::pin)
//
// The best one is probed at start or forced by guard=; mprotect steps down to pinned area by area where mappings
// run short (half of vm.max_map_count is ours). A zone that no node owns is PROT_NONE in all three.
//
// G1  what close() or close_zone() reports as closed holds no memory and faults when touched.
// G2  open() is idempotent: memory that is open already may be opened again.
//
// zone: nomalloc
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"
#include "runtime/base/options.h"
#include "runtime/base/os_linux.h"

namespace penumbra::region {

class Guards {
 public:
  enum class Opened : std::uint8_t { kFailed, kExactly, kWholeUnits };

  // Probes the kernel on `probe`, one PROT_NONE page of the span, which is left as it was.
  void init(GuardKind wanted, AppAddr probe);

  GuardKind kind() const { return kind_; }
  // May mappings be spent on convenience? False always when pinned is forced, so that it is what a test meets.
  bool maps_are_plenty() const {
    return kind_ != GuardKind::kPinned && maps_.load(std::memory_order_relaxed) < maps_budget_;
  }
  bool batches() const { return batches_; }  // process_madvise on ourselves works

  // A run of PROT_NONE zones is about to be owned by a node: afterwards open() works inside, and nothing is
  // accessible yet.
  bool open_zones(AppAddr begin, std::size_t bytes);
  // The reverse: all of it inaccessible, without memory and without page tables.
  bool close_zone(AppAddr begin, std::size_t bytes);

  // Makes the pages of an area accessible. kFailed: some of them may be, and close() makes sure. kWholeUnits: the units they lie in are accessible as a whole now, and the
  // caller, who holds counts on them, must pin them.
  Opened open(AppAddr begin, std::size_t bytes);
  // For a single area: drops its memory and makes it inaccessible. False where no way is left.
  bool close(AppAddr begin, std::size_t bytes);

  // An area outside zones: opened by mprotect alone (what lies around is PROT_NONE), closed by a fresh mapping.
  bool open_large(AppAddr begin, std::size_t bytes, std::size_t with_guard);
  bool close_large(AppAddr begin, std::size_t with_guard);

  // Drops the memory of [begin, begin+bytes); locked memory too.
  static bool drop(AppAddr begin, std::size_t bytes);

 private:
  void forget_markers(AppAddr begin, std::size_t bytes);
  void count_maps(int by) { maps_.fetch_add(by, std::memory_order_relaxed); }

  GuardKind kind_ = GuardKind::kPinned;
  bool batches_ = false;
  std::int64_t maps_budget_ = 0;
  std::atomic<std::int64_t> maps_{0};  // mappings that our guards cost, as far as we know
  // Ranges of marker zones that had to be closed by mprotect: then open() must undo either.
  std::atomic<std::uint32_t> closed_by_protect_{0};
  // Markers left behind in PROT_NONE space: then open_large() must look.
  std::atomic<std::uint32_t> stray_markers_{0};
};

}  // namespace penumbra::region
