#include "shadow/frames.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "runtime/base/check.h"

namespace penumbra::shadow {

os::Result FramePool::init(std::uint32_t frames, std::size_t frame_bytes) {
  PENUMBRA_CHECK(frame_bytes % kPageSize == 0 && frame_bytes <= kStepBytes);
  const os::Result links = os::map_noreserve(round_up(frames * sizeof(std::uint32_t), kPageSize));
  if (!links.ok()) return links;
  bytes_ = std::size_t{frames} * frame_bytes;
  const os::Result reserved = os::reserve(AppAddr(), bytes_);
  if (!reserved.ok()) {
    os::unmap(links.address(), round_up(frames * sizeof(std::uint32_t), kPageSize)).ignore();
    return reserved;
  }
  // Both are hints.
  os::advise(reserved.address(), bytes_, MADV_NOHUGEPAGE).ignore();
  os::advise(reserved.address(), bytes_, MADV_DONTDUMP).ignore();
  next_ = links.address().ptr<std::atomic<std::uint32_t>>();
  frames_ = reserved.address().ptr<std::uint8_t>();
  frame_bytes_ = frame_bytes;
  step_frames_ = static_cast<std::uint32_t>(kStepBytes / frame_bytes);
  capacity_ = frames;
  return reserved;
}

void FramePool::destroy() {
  if (next_ == nullptr) return;
  os::unmap(AppAddr(next_), round_up(capacity_ * sizeof(std::uint32_t), kPageSize)).ignore();
  os::unmap(AppAddr(frames_), bytes_).ignore();
  this->~FramePool();
  new (this) FramePool;
}

std::uint32_t FramePool::index_of(const std::uint8_t* frame) const {
  const std::size_t offset = static_cast<std::size_t>(frame - frames_);
  PENUMBRA_CHECK(offset % frame_bytes_ == 0 && offset / frame_bytes_ < capacity_);
  return static_cast<std::uint32_t>(offset / frame_bytes_);
}

// F3. Several may open the same step; that does no harm.
bool FramePool::open_step(std::uint32_t index) {
  const std::uint32_t first = index - index % step_frames_;
  const std::uint32_t end = std::min(first + step_frames_, capacity_);
  const os::Result opened =
      os::protect(AppAddr(frame_at(first)), (end - first) * frame_bytes_, PROT_READ | PROT_WRITE);
  if (!opened.ok()) return false;
  std::uint32_t before = opened_.load(std::memory_order_relaxed);
  while (before < end && !opened_.compare_exchange_weak(before, end, std::memory_order_release)) {
  }
  return true;
}

std::uint8_t* FramePool::take() {
  Head head = free_.load(std::memory_order_acquire);
  while (head.index != kNone) {
    // Links stay readable for ever, so that a frame taken meanwhile costs a wrong link and a failed swap.
    const std::uint32_t next = next_[head.index].load(std::memory_order_relaxed);
    if (free_.compare_exchange_weak(head, Head{next, head.turn + 1}, std::memory_order_acquire)) {
      taken_.fetch_add(1, std::memory_order_relaxed);
      return frame_at(head.index);
    }
  }
  std::uint32_t fresh = fresh_.load(std::memory_order_relaxed);
  do {
    if (fresh == capacity_) return nullptr;
    if (fresh >= opened_.load(std::memory_order_acquire) && !open_step(fresh)) return nullptr;
  } while (!fresh_.compare_exchange_weak(fresh, fresh + 1, std::memory_order_relaxed));
  taken_.fetch_add(1, std::memory_order_relaxed);
  return frame_at(fresh);
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
