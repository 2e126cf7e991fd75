// Page frames for shadow that no fixed map holds: taken by anybody, given back only behind a flush.
//
//     free --take--> in a table --retire--> retired --reuse_retired, after the flush--> free
//
// F1  a frame is in one of: the free list, a table, the retired list. Between retire() and reuse_retired() nobody can
//     take it, so that a reader whose translation is out of date reads old bytes of its own page, never another's.
// F2  frames are mapped once and never unmapped: a reader may touch one at any time (memory ruling 16).
// F3  frames behind opened_ are inaccessible: they cost address space, but count against no overcommit limit until the
//     step that they lie in is opened (memory ruling 15).
//
// take() and give_back() are lock-free and may race with everything; retire() and reuse_retired() belong to whoever
// flushes (the purge mutex). Memory comes in steps, when the free list is empty.
//
// zone: nomalloc
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"

namespace penumbra::shadow {

class FramePool {
 public:
  constexpr FramePool() = default;
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;

  // Address space for `frames` frames of whole pages each; memory as they are touched.
  os::Result init(std::uint32_t frames, std::size_t frame_bytes = kPageSize);
  void destroy();

  // A frame with any contents, or null when all are taken, or the kernel opens no more.
  std::uint8_t* take();
  // One that no table ever named.
  void give_back(std::uint8_t* frame);

  // Its table entry is cleared; readers may still have it.
  void retire(std::uint8_t* frame);
  // A flush has come since the last retire(): what was retired is free. How many.
  std::uint32_t reuse_retired();
  // In a child whose parent may have been in the middle of the two above: what was retired is lost.
  void forget_retired() { retired_ = retired_last_ = kNone, retired_count_ = 0; }

  bool owns(const std::uint8_t* p) const { return static_cast<std::size_t>(p - frames_) < capacity_ * frame_bytes_; }
  std::uint32_t capacity() const { return capacity_; }
  // Retired ones count as taken.
  std::uint32_t taken() const { return taken_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::size_t kStepBytes = std::size_t{1} << 20;  // opened at once
  // Index of the first free frame, and a number that changes with every change of it: no ABA.
  struct alignas(8) Head {  // one word: clang calls a library for atomics of less alignment
    std::uint32_t index;
    std::uint32_t turn;
  };
  void push_run(std::uint32_t first, std::uint32_t last);
  std::uint32_t index_of(const std::uint8_t* frame) const;
  std::uint8_t* frame_at(std::uint32_t index) const { return frames_ + std::size_t{index} * frame_bytes_; }
  bool open_step(std::uint32_t index);

  std::uint8_t* frames_ = nullptr;
  std::atomic<std::uint32_t>* next_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t frame_bytes_ = kPageSize;
  std::uint32_t capacity_ = 0;
  std::uint32_t step_frames_ = 1;
  std::atomic<std::uint32_t> opened_{0};  // frames at and behind this are inaccessible
  alignas(64) std::atomic<Head> free_{Head{kNone, 0}};
  std::atomic<std::uint32_t> fresh_{0};  // frames at and behind this were never taken
  std::atomic<std::uint32_t> taken_{0};
  std::uint32_t retired_ = kNone;
  std::uint32_t retired_last_ = kNone;
  std::uint32_t retired_count_ = 0;
};

}  // namespace penumbra::shadow
