#include "allocator/heap/quarantine.h"

#include "runtime/base/check.h"
#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"

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

void Quarantine::init(std::size_t limit, Release release) {
  static_assert(sizeof(Chunk) == kPageSize);
  limit_ = limit;
  // A thread may hold back this much on top of the limit: ASan's figure, or a 64th where the limit is small.
  batch_limit_ = std::min<std::size_t>(1u << 20, limit / 64);
  release_ = release;
}

void Quarantine::put(QuarantineBatch& batch, AppAddr block, std::size_t bytes) {
  if (limit_ == 0) {
    release_(block.ptr<void>());
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
    if (!append_locked(entries[i])) lost_blocks_.fetch_add(1, std::memory_order_relaxed);
  }
  QuarantineEntry old[2 * kBatchBlocks];
  std::size_t taken = 0;
  while (may_release) {
    taken = take_oldest_locked(old, std::size(old), limit_);
    if (taken == 0) break;
    lock_.unlock();
    for (std::size_t i = 0; i < taken; ++i) release_(old[i].block().ptr<void>());
    lock_.lock();
  }
  lock_.unlock();
}

void Quarantine::drain() {
  QuarantineEntry old[2 * kBatchBlocks];
  for (;;) {
    lock_.lock();
    const std::size_t taken = take_oldest_locked(old, std::size(old), 0);
    lock_.unlock();
    if (taken == 0) return;
    for (std::size_t i = 0; i < taken; ++i) release_(old[i].block().ptr<void>());
  }
}

bool Quarantine::append_locked(QuarantineEntry entry) {
  if (newest_ == nullptr || newest_->tail == Chunk::kEntries) {
    Chunk* const chunk = new_chunk_locked();
    if (chunk == nullptr) return false;
    (newest_ == nullptr ? oldest_ : newest_->next) = chunk;
    newest_ = chunk;
  }
  newest_->entries[newest_->tail++] = entry;
  queued_bytes_.store(queued_bytes_.load(std::memory_order_relaxed) + entry.bytes(),
                      std::memory_order_relaxed);
  return true;
}

std::size_t Quarantine::take_oldest_locked(QuarantineEntry* out, std::size_t max, std::size_t limit) {
  std::size_t taken = 0;
  std::size_t bytes = queued_bytes_.load(std::memory_order_relaxed);
  while (taken < max && bytes > limit) {
    Chunk* const chunk = oldest_;
    PENUMBRA_CHECK(chunk != nullptr && chunk->head < chunk->tail);
    out[taken] = chunk->entries[chunk->head++];
    bytes -= out[taken++].bytes();
    if (chunk->head == chunk->tail) {
      oldest_ = chunk->next;
      if (oldest_ == nullptr) newest_ = nullptr;
      chunk->next = spare_;
      spare_ = chunk;
    }
  }
  queued_bytes_.store(bytes, std::memory_order_relaxed);
  return taken;
}

Quarantine::Chunk* Quarantine::new_chunk_locked() {
  constexpr std::size_t kChunksAtOnce = 16;
  if (spare_ == nullptr) {
    const os::Result pages = os::map_anonymous(kChunksAtOnce * kPageSize);
    if (!pages.ok()) return nullptr;
    for (std::size_t i = 0; i < kChunksAtOnce; ++i) {
      auto* const chunk = (pages.address() + i * kPageSize).ptr<Chunk>();
      chunk->next = spare_;
      spare_ = chunk;
    }
  }
  Chunk* const chunk = spare_;
  spare_ = chunk->next;
  chunk->next = nullptr;
  chunk->head = chunk->tail = 0;
  return chunk;
}

void Quarantine::validate() {
  const LockGuard guard(lock_);
  std::size_t bytes = 0;
  for (const Chunk* chunk = oldest_; chunk != nullptr; chunk = chunk->next) {
    PENUMBRA_CHECK_OP(chunk->head, <, chunk->tail);
    for (std::size_t i = chunk->head; i < chunk->tail; ++i) bytes += chunk->entries[i].bytes();
    PENUMBRA_CHECK((chunk->next == nullptr) == (chunk == newest_));
  }
  PENUMBRA_CHECK_OP(bytes, ==, queued_bytes());  // I1
}

}  // namespace penumbra::heap
