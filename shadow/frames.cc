#include "shadow/frames.h"

#include "runtime/base/check.h"

namespace penumbra::shadow {

os::Result FramePool::init(std::uint32_t frames) {
  const std::size_t links = round_up(frames * sizeof(std::uint32_t), kPageSize);
  bytes_ = links + std::size_t{frames} * kPageSize;
  const os::Result mapped = os::map_noreserve(bytes_);
  if (!mapped.ok()) return mapped;
  next_ = mapped.address().ptr<std::atomic<std::uint32_t>>();
  frames_ = (mapped.address() + links).ptr<std::uint8_t>();
  capacity_ = frames;
  return mapped;
}

void FramePool::destroy() {
  if (next_ != nullptr) os::unmap(AppAddr(next_), bytes_).ignore();
  next_ = nullptr;
}

std::uint32_t FramePool::index_of(const std::uint8_t* frame) const {
  const std::size_t offset = static_cast<std::size_t>(frame - frames_);
  PENUMBRA_CHECK(offset % kPageSize == 0 && offset / kPageSize < capacity_);
  return static_cast<std::uint32_t>(offset / kPageSize);
}

std::uint8_t* FramePool::take() {
  Head head = free_.load(std::memory_order_acquire);
  while (head.index != kNone) {
    // Links stay readable for ever, so that a frame taken meanwhile costs a wrong link and a failed swap.
    const std::uint32_t next = next_[head.index].load(std::memory_order_relaxed);
    if (free_.compare_exchange_weak(head, Head{next, head.turn + 1}, std::memory_order_acquire)) {
      taken_.fetch_add(1, std::memory_order_relaxed);
      return frames_ + std::size_t{head.index} * kPageSize;
    }
  }
  std::uint32_t fresh = fresh_.load(std::memory_order_relaxed);
  do {
    if (fresh == capacity_) return nullptr;
  } while (!fresh_.compare_exchange_weak(fresh, fresh + 1, std::memory_order_relaxed));
  taken_.fetch_add(1, std::memory_order_relaxed);
  return frames_ + std::size_t{fresh} * kPageSize;
}

void FramePool::push_run(std::uint32_t first, std::uint32_t last) {
  Head head = free_.load(std::memory_order_relaxed);
  do {
    next_[last].store(head.index, std::memory_order_relaxed);
  } while (!free_.compare_exchange_weak(head, Head{first, head.turn + 1}, std::memory_order_release));
}

void FramePool::give_back(std::uint8_t* frame) {
  const std::uint32_t index = index_of(frame);
  taken_.fetch_sub(1, std::memory_order_relaxed);
  push_run(index, index);
}

void FramePool::retire(std::uint8_t* frame) {
  const std::uint32_t index = index_of(frame);
  next_[index].store(retired_, std::memory_order_relaxed);
  if (retired_ == kNone) retired_last_ = index;
  retired_ = index;
  ++retired_count_;
}

std::uint32_t FramePool::reuse_retired() {
  const std::uint32_t count = retired_count_;
  if (count == 0) return 0;
  taken_.fetch_sub(count, std::memory_order_relaxed);
  push_run(retired_, retired_last_);
  retired_ = retired_last_ = kNone;
  retired_count_ = 0;
  return count;
}

}  // namespace penumbra::shadow
