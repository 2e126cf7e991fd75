// Page frames for shadow that no fixed map holds: taken by anybody, given back only behind a flush.
//
//     free --take--> in a table --retire--> retired --reuse_retired, after the flush--> free
//
// F1  a frame is in one of: the free list, a table, the retired list. Between retire() and reuse_retired() nobody can
//     take it, so that a reader whose translation is out of date reads old bytes of its own page, never another's.
// F2  frames are mapped once and never unmapped: a reader may touch one at any time (memory ruling 16).
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

  // Address space for `frames` frames; memory as they are touched.
  os::Result init(std::uint32_t frames);
  void destroy();

  // A frame with any contents, or null when all are taken.
  std::uint8_t* take();
  // One that no table ever named.
  void give_back(std::uint8_t* frame);

  // Its table entry is cleared; readers may still have it.
  void retire(std::uint8_t* frame);
  // A flush has come since the last retire(): what was retired is free. How many.
  std::uint32_t reuse_retired();

  std::uint32_t taken() const { return taken_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  // Index of the first free frame, and a number that changes with every change of it: no ABA.
  struct alignas(8) Head {  // one word: clang calls a library for atomics of less alignment
    std::uint32_t index;
    std::uint32_t turn;
  };
  void push_run(std::uint32_t first, std::uint32_t last);
  std::uint32_t index_of(const std::uint8_t* frame) const;

  std::uint8_t* frames_ = nullptr;
  std::atomic<std::uint32_t>* next_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint32_t capacity_ = 0;
  alignas(64) std::atomic<Head> free_{Head{kNone, 0}};
  std::atomic<std::uint32_t> fresh_{0};  // frames at and behind this were never taken
  std::atomic<std::uint32_t> taken_{0};
  std::uint32_t retired_ = kNone;
  std::uint32_t retired_last_ = kNone;
  std::uint32_t retired_count_ = 0;
};

}  // namespace penumbra::shadow
