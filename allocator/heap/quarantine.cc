#include "allocator/heap/quarantine.h"

#include "runtime/base/check.h"
#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"

#include <sys/mman.h>

#include <algorithm>

namespace penumbra::heap {

// One page of entries, [head, tail) of them waiting.
struct Quarantine::Chunk {
  static constexpr std::size_t kEntries = (kPageSize - 16) / sizeof(QuarantineEntry);

  Chunk* next;
  std::uint32_t head;
  std::uint32_t tail;
  QuarantineEntry entries[kEntries];
};

void Quarantine::init(std::size_t limit, Release release_block, Release release_large) {
  static_assert(sizeof(Chunk) == kPageSize);
  limit_ = limit;
  // A thread may hold back this much on top of the limit: ASan's figure, or a 64th where the limit is small.
  batch_limit_ = std::min<std::size_t>(1u << 20, limit / 64);
  release_block_ = release_block;
  release_large_ = release_large;
}

void Quarantine::put(QuarantineBatch& batch, AppAddr block, std::size_t bytes) {
  if (limit_ == 0) {
    release_block_(block.ptr<void>());
    return;
  }
  const QuarantineEntry entry(block, bytes);
  if (batch.in_use || batch.is_closed) {
    push(&entry, 1, !batch.in_use, false);
    return;
  }
  batch.in_use = true;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  batch.entries[batch.count++] = entry;
  batch.bytes += bytes;
  if (batch.count == kBatchBlocks || batch.bytes > batch_limit_) {
    push(batch.entries, batch.count, true, true);
    batch.count = 0;
    batch.bytes = 0;
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
  batch.in_use = false;
}

void Quarantine::flush(QuarantineBatch& batch) {
  if (batch.in_use || batch.count == 0) return;
  batch.in_use = true;
  push(batch.entries, batch.count, true, true);
  batch.count = 0;
  batch.bytes = 0;
  batch.in_use = false;
}

void Quarantine::close(QuarantineBatch& batch) {
  flush(batch);
  batch.is_closed = true;
}

// `may_release` false: the thread is inside put() already, or about to be gone; giving blocks back then could
// run mimalloc inside itself, or make it set up a heap for a thread that never ends again.
void Quarantine::push(const QuarantineEntry* entries, std::size_t count, bool may_wait, bool may_release) {
  if (may_wait) {
    lock_.lock();
  } else if (!lock_.try_lock()) {
    lost_blocks_.fetch_add(count, std::memory_order_relaxed);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!append_locked(blocks_, entries[i])) lost_blocks_.fetch_add(1, std::memory_order_relaxed);
  }
  if (may_release) release_excess_locked(limit_);
  lock_.unlock();
}

void Quarantine::put_large(const QuarantineBatch& batch, AppAddr object, std::size_t bytes) {
  // A thread that is inside put() may hold the lock; a region can be freed by anybody at any time.
  const bool fits = bytes <= limit_ / kLargeShare;
  if (!fits || batch.in_use) {
    release_large_(object.ptr<void>());
    return;
  }
  lock_.lock();
  const bool is_queued = append_locked(large_, QuarantineEntry(object, bytes));
  release_excess_locked(limit_);
  lock_.unlock();
  if (!is_queued) release_large_(object.ptr<void>());
}

// The lock is given away while objects are released.
void Quarantine::release_excess_locked(std::size_t limit) {
  QuarantineEntry old[2 * kBatchBlocks];
  for (;;) {
    Release release = release_large_;
    std::size_t taken = take_oldest_locked(large_, old, std::size(old), limit / kLargeShare);
    if (taken == 0) {
      release = release_block_;
      const std::size_t left = limit > large_.bytes ? limit - large_.bytes : 0;
      taken = take_oldest_locked(blocks_, old, std::size(old), left);
    }
    if (taken == 0) return;
    lock_.unlock();
    for (std::size_t i = 0; i < taken; ++i) release(old[i].block().ptr<void>());
    lock_.lock();
  }
}

void Quarantine::drain() {
  const LockGuard guard(lock_);
  release_excess_locked(0);
}

bool Quarantine::append_locked(Queue& queue, QuarantineEntry entry) {
  if (queue.newest == nullptr || queue.newest->tail == Chunk::kEntries) {
    Chunk* const chunk = new_chunk_locked();
    if (chunk == nullptr) return false;
    (queue.newest == nullptr ? queue.oldest : queue.newest->next) = chunk;
    queue.newest = chunk;
  }
  queue.newest->entries[queue.newest->tail++] = entry;
  queue.bytes += entry.bytes();
  queued_bytes_.store(blocks_.bytes + large_.bytes, std::memory_order_relaxed);
  return true;
}

std::size_t Quarantine::take_oldest_locked(Queue& queue, QuarantineEntry* out, std::size_t max, std::size_t limit) {
  std::size_t taken = 0;
  while (taken < max && queue.bytes > limit) {
    Chunk* const chunk = queue.oldest;
    PENUMBRA_CHECK(chunk != nullptr && chunk->head < chunk->tail);
    out[taken] = chunk->entries[chunk->head++];
    queue.bytes -= out[taken++].bytes();
    if (chunk->head == chunk->tail) {
      queue.oldest = chunk->next;
      if (queue.oldest == nullptr) queue.newest = nullptr;
      chunk->next = spare_;
      spare_ = chunk;
    }
  }
  queued_bytes_.store(blocks_.bytes + large_.bytes, std::memory_order_relaxed);
  return taken;
}

// Pages for chunks: a few at first, then a huge page at a time. A queue of small blocks takes megabytes, and goes round in
// them. Empty where there is no memory.
AppRange Quarantine::map_chunks_locked() const {
  constexpr std::size_t kFew = 16 * kPageSize;
  constexpr std::size_t kBytesBeforeHuge = 4 * kFew;
  if (mapped_bytes_ >= kBytesBeforeHuge) {
    const os::Result room = os::map_anonymous(2 * kHugePageSize - kPageSize);
    if (room.ok()) {
      const AppAddr end = room.address() + (2 * kHugePageSize - kPageSize);
      const AppAddr begin(round_up(room.address().value, kHugePageSize));
      const AppRange page{begin, begin + kHugePageSize};
      if (page.begin > room.address()) os::unmap(room.address(), page.begin - room.address()).ignore();
      if (end > page.end) os::unmap(page.end, end - page.end).ignore();
      os::advise(page.begin, page.bytes(), MADV_HUGEPAGE).ignore();  // a hint
      return page;
    }
  }
  const os::Result pages = os::map_anonymous(kFew);
  return pages.ok() ? AppRange{pages.address(), pages.address() + kFew} : AppRange();
}

Quarantine::Chunk* Quarantine::new_chunk_locked() {
  Chunk* chunk = spare_;
  if (chunk != nullptr) {
    spare_ = chunk->next;
  } else {
    if (unused_.bytes() == 0) {
      unused_ = map_chunks_locked();
      mapped_bytes_ += unused_.bytes();
    }
    if (unused_.bytes() == 0) return nullptr;
    chunk = unused_.begin.ptr<Chunk>();
    unused_.begin = unused_.begin + kPageSize;
  }
  chunk->next = nullptr;
  chunk->head = chunk->tail = 0;
  return chunk;
}

void Quarantine::abandon_after_fork() {
  blocks_ = large_ = Queue();
  spare_ = nullptr;
  unused_ = AppRange();
  queued_bytes_.store(0, std::memory_order_relaxed);
  lock_.reset_after_fork();
}

void Quarantine::validate() {
  const LockGuard guard(lock_);
  for (const Queue* queue : {&blocks_, &large_}) {
    std::size_t bytes = 0;
    for (const Chunk* chunk = queue->oldest; chunk != nullptr; chunk = chunk->next) {
      PENUMBRA_CHECK_OP(chunk->head, <, chunk->tail);
      for (std::size_t i = chunk->head; i < chunk->tail; ++i) bytes += chunk->entries[i].bytes();
      PENUMBRA_CHECK((chunk->next == nullptr) == (chunk == queue->newest));
    }
    PENUMBRA_CHECK_OP(bytes, ==, queue->bytes);  // I1
  }
  PENUMBRA_CHECK_OP(blocks_.bytes + large_.bytes, ==, queued_bytes());
}

}  // namespace penumbra::heap
