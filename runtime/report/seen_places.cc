#include "runtime/report/seen_places.h"

namespace penumbra::report {

std::uint64_t SeenPlaces::key_of(std::uintptr_t pc, std::uint32_t what) {
  // The finaliser of MurmurHash3: every bit of pc and what reaches every bit of the key.
  std::uint64_t h = pc ^ (std::uint64_t{what} << 48) ^ (std::uint64_t{what} >> 16);
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdu;
  h ^= h >> 33;
  h *= 0xc4ceb9fe1a85ec53u;
  h ^= h >> 33;
  return h == 0 ? 1 : h;
}

SeenPlaces::Verdict SeenPlaces::note(std::uintptr_t pc, std::uint32_t what) {
  const std::uint64_t key = key_of(pc, what);
  for (std::size_t i = key % kCapacity;; i = (i + 1) % kCapacity) {
    std::uint64_t seen = keys_[i].load(std::memory_order_relaxed);
    if (seen == 0) {
      if (used_.load(std::memory_order_relaxed) >= kCapacity / 2) {
        refused_.fetch_add(1, std::memory_order_relaxed);
        return Verdict::kFull;
      }
      if (keys_[i].compare_exchange_strong(seen, key, std::memory_order_relaxed)) {
        used_.fetch_add(1, std::memory_order_relaxed);
        return Verdict::kNew;
      }
    }
    if (seen == key) {
      repeats_.fetch_add(1, std::memory_order_relaxed);
      return Verdict::kRepeat;
    }
  }
}

bool SeenPlaces::note_if_seen(std::uintptr_t pc, std::uint32_t what) {
  const std::uint64_t key = key_of(pc, what);
  for (std::size_t i = key % kCapacity;; i = (i + 1) % kCapacity) {
    const std::uint64_t seen = keys_[i].load(std::memory_order_relaxed);
    if (seen == 0) return false;
    if (seen != key) continue;
    repeats_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
}

}  // namespace penumbra::report
