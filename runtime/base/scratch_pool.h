// Buffers of one size for whoever needs one for a moment: a set for all CPUs, there while somebody has reserved it.
//
//     reserve() ... reserve()    the first maps the set, the others take a reference       slow path: a mutex
//        acquire() / release()   a free buffer, that of this CPU first                     no lock, any context
//     unreserve() ...            the last one unmaps it
//
// S1  the set is mapped exactly while the count of reservations is not 0. A reservation is taken unless the count is 0
//     (refcount.h), never after a look at it: the last one may go between look and take.
// S2  whoever uses acquire() holds a reservation meanwhile, so that the set cannot vanish under a buffer.
// S3  a buffer has one user: its flag is taken by an exchange. A signal handler that comes meanwhile gets another one,
//     or none.
//
// zone: signal-safe; reserve() and unreserve() are nomalloc
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/base/config.h"
#include "runtime/base/locks.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/refcount.h"

namespace penumbra {

class ScratchPool {
 public:
  // Buffers of `bytes`, rounded up to pages; `count` of them, 0 for one more than there are CPUs.
  constexpr explicit ScratchPool(std::size_t bytes, std::uint32_t count = 0)
      : bytes_(round_up(bytes, kPageSize)), wanted_(count) {}
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;

  // False where there is no memory: then nothing was reserved.
  [[nodiscard]] bool reserve();
  void unreserve();

  // Null where all are in use. Contents are whatever the last user left.
  void* acquire() {
    const std::uint32_t first = os::current_cpu() % count_;
    for (std::uint32_t i = 0; i < count_; ++i) {
      const std::uint32_t at = (first + i) % count_;
      std::atomic<bool>& taken = flag_of(at);
      if (!taken.load(std::memory_order_relaxed) && !taken.exchange(true, std::memory_order_acquire)) {
        return buffers_ + at * bytes_;
      }
    }
    return nullptr;
  }
  void release(void* buffer) {
    const auto at = static_cast<std::size_t>(static_cast<std::uint8_t*>(buffer) - buffers_) / bytes_;
    flag_of(at).store(false, std::memory_order_release);
  }

  std::size_t buffer_bytes() const { return bytes_; }
  std::uint32_t buffers() const { return count_; }
  bool is_mapped() { return reservations_.read() != 0; }

 private:
  // A cache line for each flag, in front of the buffers.
  std::atomic<bool>& flag_of(std::size_t at) { return *reinterpret_cast<std::atomic<bool>*>(flags_ + at * 64); }

  const std::size_t bytes_;
  const std::uint32_t wanted_;
  std::uint32_t count_ = 0;
  std::uint8_t* flags_ = nullptr;
  std::uint8_t* buffers_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  Refcount reservations_{0};
  Mutex changing_;  // held over the set's begin and end
};

}  // namespace penumbra
