// The TLB that shadow would have if it were the kernel's: one flush for many pages, and no page frame used again before
// everybody has forgotten it.
//
//     purger:  clear the table entries -> flush: generation + 1 -> free the frames
//     reader:  g = generation; translate, by its own SoftTlb or the tables; read; generation still g? else again
//
// On the direct map the kernel translates, and a flush is the shootdown that one batch of madvise causes; what is left
// here is counting, and the cost of a larger machine. On a paged map a flush is one step of the generation, which makes
// every entry of every thread's SoftTlb worthless, and sends a reader that was under way back.
//
// T1  bytes that a reader uses were in a frame that belonged to its page for the whole time between its two looks at
//     the generation: clear, flush, free in this order, and frames stay mapped for ever (memory ruling 16).
//     tests/tlb/model proves it for all interleavings, and finds the bug if the order or the second look is missing.
// T2  only one thread flushes at a time (the purge mutex); anybody may read.
//
// x86 keeps loads in order among themselves and stores too, so that compiler barriers are all it takes.
//
// zone: signal-safe
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/base/config.h"

namespace penumbra::shadow {

// What one flush costs on the machine that is modelled, beside its real cost: base + CPUs x per_cpu, in nanoseconds.
// The kernel's key figure is 7.5 ms on 256 CPUs (facts kasan 1.6 #12). Zero: nothing is added.
struct FlushCost {
  std::uint64_t base_ns = 0;
  std::uint64_t per_cpu_ns = 0;
  unsigned cpus = 0;

  std::uint64_t of_one() const { return base_ns + per_cpu_ns * cpus; }
};

class Tlb {
 public:
  struct Counts {
    std::uint64_t flushes, ranges, pages;
  };

  constexpr Tlb() = default;
  Tlb(const Tlb&) = delete;
  Tlb& operator=(const Tlb&) = delete;

  void set_cost(FlushCost cost) { cost_ = cost; }
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // All table entries of these pages are cleared; when it returns, nobody will use their translations any more.
  // Spends the modelled cost as CPU time of the caller. T2.
  void flush(std::uint64_t ranges, std::uint64_t pages);

  Counts counts() const {
    return {flushes_.load(std::memory_order_relaxed), ranges_.load(std::memory_order_relaxed),
            pages_.load(std::memory_order_relaxed)};
  }

 private:
  FlushCost cost_;
  // Read by every reader, written once a flush.
  alignas(64) std::atomic<std::uint64_t> generation_{1};
  // Written by the flushing thread alone.
  alignas(64) std::atomic<std::uint64_t> flushes_{0};
  std::atomic<std::uint64_t> ranges_{0};
  std::atomic<std::uint64_t> pages_{0};
};

// One thread's translations of pages to frames. Direct mapped; an entry counts only in the generation it was made in.
//
// A signal handler of the thread uses the same entries. Whoever takes one looks at its page and generation again behind
// its frame; and a handler that interrupted the making of an entry makes none. (One that leaves it by longjmp ends the
// remembering of this thread; reading goes on, slower.)
class SoftTlb {
 public:
  static constexpr std::size_t kEntries = 16;

  struct RememberAll {
    bool operator()(const std::uint8_t*) const { return true; }
  };

  // use(frame) for the frame that walk(page) finds in the tables, or an entry here remembers; again until no flush
  // came between. `use` reads at most this page, keeps nothing but its result, and may be called several times. A frame
  // is remembered where `may_remember` says so: that it belongs to its page must not change without a flush.
  template <class Walk, class Use, class MayRemember = RememberAll>
  auto read(const Tlb& tlb, std::size_t page, Walk walk, Use use, MayRemember may_remember = {}) {
    for (;;) {
      const std::uint64_t generation = tlb.generation();
      const std::uint8_t* frame = look_up(page, generation);
      if (frame == nullptr) {
        frame = walk(page);
        if (may_remember(frame)) remember(page, generation, frame);
      }
      const auto result = use(frame);
      // The bytes before the second look, in this order.
      std::atomic_thread_fence(std::memory_order_acquire);
      if (tlb.generation() == generation) [[likely]]
        return result;
    }
  }

 private:
  // Relaxed atomics for the handler's sake: each is read when the code says so, and costs what a plain one costs.
  struct Entry {
    std::atomic<std::size_t> page{0};
    std::atomic<std::uint64_t> generation{0};  // 0 is none
    std::atomic<const std::uint8_t*> frame{nullptr};

    bool is(std::size_t wanted, std::uint64_t now) const {
      return page.load(std::memory_order_relaxed) == wanted && generation.load(std::memory_order_relaxed) == now;
    }
  };

  const std::uint8_t* look_up(std::size_t page, std::uint64_t generation) const {
    const Entry& entry = entries_[page % kEntries];
    if (!entry.is(page, generation)) return nullptr;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const std::uint8_t* const frame = entry.frame.load(std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return entry.is(page, generation) ? frame : nullptr;
  }

  void remember(std::size_t page, std::uint64_t generation, const std::uint8_t* frame) {
    if (is_remembering_.load(std::memory_order_relaxed)) return;
    is_remembering_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    Entry& entry = entries_[page % kEntries];
    entry.generation.store(0, std::memory_order_relaxed);  // a handler that comes now finds no half an entry
    std::atomic_signal_fence(std::memory_order_seq_cst);
    entry.page.store(page, std::memory_order_relaxed);
    entry.frame.store(frame, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    entry.generation.store(generation, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    is_remembering_.store(false, std::memory_order_relaxed);
  }

  std::atomic<bool> is_remembering_{false};
  Entry entries_[kEntries]{};
};

}  // namespace penumbra::shadow
