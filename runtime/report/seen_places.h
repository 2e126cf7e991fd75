// Which faulty places have been reported, and how often each came again.
//
// Open addressing over a fixed table, without locks: an entry's key is claimed once and never changes. A key is made
// of a program counter and what was wrong there; two different faults share one only if 64 hashed bits do.
//
// I1  reported() <= kCapacity / 2: beyond that no place is new any more, and refused() counts what came.
//
// zone: signal-safe
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace penumbra::report {

class SeenPlaces {
 public:
  static constexpr std::size_t kCapacity = 4096;

  enum class Verdict : std::uint8_t { kNew, kRepeat, kFull };

  // Answers kNew exactly once for each (pc, what); later calls count a repeat.
  Verdict note(std::uintptr_t pc, std::uint32_t what);
  // Counts a repeat of a place that is known; false, and nothing counted, when it is not.
  bool note_if_seen(std::uintptr_t pc, std::uint32_t what);

  std::uint64_t repeats() const { return repeats_.load(std::memory_order_relaxed); }
  std::uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  static std::uint64_t key_of(std::uintptr_t pc, std::uint32_t what);

  std::array<std::atomic<std::uint64_t>, kCapacity> keys_{};
  std::atomic<std::size_t> used_{0};
  std::atomic<std::uint64_t> repeats_{0};
  std::atomic<std::uint64_t> refused_{0};
};

}  // namespace penumbra::report
