// Freed blocks on their way back to mimalloc: held long enough that a stale pointer still meets poison.
//
//     thread's batch (64 blocks)  --full-->  one queue for the process, oldest first  --over the limit-->
//     mimalloc
//     large object  ----------------------->  a queue of its own                  --over a quarter of it-->
//     region allocator
//
// What counts is whole blocks, redzones included, and whole large objects (memory ruling 13). These may fill a
// quarter of the limit: above that the oldest of them leave, so that a few cannot push all blocks out. The queue is chunks of packed entries in
// pages of their own, never links inside the blocks: a stale write must not be able to reach it.
//
// I1  queued_bytes() is the sum of the queued entries, at most the limit once push() has returned, and at most a
//     quarter of it is large objects.
// I2  a batch belongs to one thread; a signal handler that finds it in use goes to the queue, and where that
// is
//     locked gives the block up: lost_blocks() counts those.
//
// zone: nomalloc
#pragma once

#include "runtime/base/address.h"
#include "runtime/base/locks.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace penumbra::heap {

// A block and its size in one word: address / 16 in 43 bits, size / 16 in 21.
class QuarantineEntry {
 public:
  constexpr QuarantineEntry() = default;

  constexpr QuarantineEntry(AppAddr block, std::size_t bytes) : word_(block.value >> 4 << kSizeBits | bytes >> 4) {}

  constexpr AppAddr block() const { return AppAddr(word_ >> kSizeBits << 4); }

  constexpr std::size_t bytes() const { return (word_ & ((std::uint64_t{1} << kSizeBits) - 1)) << 4; }

 private:
  static constexpr unsigned kSizeBits = 21;
  std::uint64_t word_ = 0;
};

inline constexpr std::size_t kBatchBlocks = 64;

struct QuarantineBatch {
  std::uint32_t count = 0;
  bool in_use = false;     // this thread is between two writes of it
  bool is_closed = false;  // the thread is past its last flush: no more batching
  std::size_t bytes = 0;
  QuarantineEntry entries[kBatchBlocks];
};

class Quarantine {
 public:
  using Release = void (*)(void* block);

  void init(std::size_t limit, Release release_block, Release release_large);
  // Takes over a block. `batch` is the calling thread's.
  void put(QuarantineBatch& batch, AppAddr block, std::size_t bytes);
  // Takes over a large object, or gives it back at once where it would fill more than its share alone.
  void put_large(const QuarantineBatch& batch, AppAddr object, std::size_t bytes);
  // Moves the thread's batch to the queue; from then on its blocks go there one by one.
  void close(QuarantineBatch& batch);
  void flush(QuarantineBatch& batch);
  // Gives everything queued back.
  void drain();

  std::size_t queued_bytes() const { return queued_bytes_.load(std::memory_order_relaxed); }

  std::uint64_t lost_blocks() const { return lost_blocks_.load(std::memory_order_relaxed); }

  void fork_prepare() { lock_.lock(); }

  void fork_done() { lock_.unlock(); }

  // In a child whose parent ran no fork_prepare(), by its only thread, which is not inside put(). Another thread may have
  // been in the middle of any of this: what waited is given up, and stays poisoned for the child's life.
  void abandon_after_fork();

  void validate();

 private:
  struct Chunk;

  struct Queue {
    Chunk* oldest = nullptr;
    Chunk* newest = nullptr;
    std::size_t bytes = 0;
  };

  static constexpr std::size_t kLargeShare = 4;  // one in so many bytes of the limit

  void release_excess_locked(std::size_t limit);
  void push(const QuarantineEntry* entries, std::size_t count, bool may_wait, bool may_release);
  bool append_locked(Queue& queue, QuarantineEntry entry);
  std::size_t take_oldest_locked(Queue& queue, QuarantineEntry* out, std::size_t max, std::size_t limit);
  Chunk* new_chunk_locked();
  AppRange map_chunks_locked() const;

  std::size_t limit_ = 0;
  std::size_t batch_limit_ = 0;  // bytes in a thread's batch
  Release release_block_ = nullptr;
  Release release_large_ = nullptr;
  Mutex lock_;
  Queue blocks_;
  Queue large_;
  Chunk* spare_ = nullptr;
  AppRange unused_;  // mapped pages that were no chunk yet: not touched before they are needed
  std::size_t mapped_bytes_ = 0;
  std::atomic<std::size_t> queued_bytes_{0};  // written under lock_
  std::atomic<std::uint64_t> lost_blocks_{0};
};

}  // namespace penumbra::heap
