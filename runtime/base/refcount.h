// A reference count that says what is wrong with its use, with the kernel's semantics (lib/refcount.c's, reimplemented).
//
//     0            nobody has a reference, and nobody may take one: the object is being freed
//     1..INT_MAX   so many references
//     < 0          saturated: it stays near kSaturated, so that the object leaks instead of being freed in use
//
// "Read the count, then take a reference" is a race: between the two the last one may go. So a reference is taken from
// another one (inc) or unless zero (inc_not_zero), which look and take in one step.
//
// Every operation does its work and returns a verdict; runtime/refcount_api.cc reports bad ones of users' programs.
// Taking from another reference is relaxed. Taking unless zero acquires what set() released: the count itself may be how
// the object was published (ScratchPool). Giving back releases and the last one acquires, so that all uses come before
// the object's end. No fences: they cost the same here, and ThreadSanitizer does not see them.
//
// zone: signal-safe
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>

namespace penumbra {

enum class RefVerdict : std::uint8_t {
  kFine,
  kAdditionOnZero,  // a reference to what nobody has: use-after-free
  kUnderflow,       // more given back than taken: use-after-free
  kSaturated,       // too many: from now on it leaks
  kDecrementToZero  // the last one given back by a call that cannot free: leaks
};

struct RefResult {
  bool done;  // inc_not_zero: a reference was taken; *_and_test: it was the last
  RefVerdict verdict;
};

// Works on a plain int, so that C structures can hold one.
class Refcount {
 public:
  static constexpr int kSaturated = INT_MIN / 2;

  constexpr explicit Refcount(int n = 1) : refs_(n) {}

  static void set(int& refs, int n) { at(refs).store(n, std::memory_order_release); }
  static int read(int& refs) { return at(refs).load(std::memory_order_relaxed); }

  static RefResult add_not_zero(int& refs, int n) {
    int old = read(refs);
    do {
      if (old == 0) return {false, RefVerdict::kFine};
    } while (!at(refs).compare_exchange_weak(old, sum(old, n), std::memory_order_acquire, std::memory_order_relaxed));
    return {true, old < 0 || sum(old, n) < 0 ? saturate(refs, RefVerdict::kSaturated) : RefVerdict::kFine};
  }

  static RefVerdict add(int& refs, int n) {
    const int old = at(refs).fetch_add(n, std::memory_order_relaxed);
    if (old == 0) [[unlikely]]
      return saturate(refs, RefVerdict::kAdditionOnZero);
    if (old < 0 || sum(old, n) < 0) [[unlikely]]
      return saturate(refs, RefVerdict::kSaturated);
    return RefVerdict::kFine;
  }

  static RefResult sub_and_test(int& refs, int n) {
    const int old = at(refs).fetch_sub(n, std::memory_order_acq_rel);
    if (old == n && old > 0) return {true, RefVerdict::kFine};
    if (old <= 0 || old < n) [[unlikely]]
      return {false, saturate(refs, RefVerdict::kUnderflow)};
    return {false, RefVerdict::kFine};
  }

  static RefVerdict dec(int& refs) {
    const int old = at(refs).fetch_sub(1, std::memory_order_release);
    if (old <= 1) [[unlikely]]
      return saturate(refs, old == 1 ? RefVerdict::kDecrementToZero : RefVerdict::kUnderflow);
    return RefVerdict::kFine;
  }

  int read() { return read(refs_); }
  void set(int n) { set(refs_, n); }
  RefVerdict inc() { return add(refs_, 1); }
  RefResult inc_not_zero() { return add_not_zero(refs_, 1); }
  RefResult dec_and_test() { return sub_and_test(refs_, 1); }

 private:
  static std::atomic_ref<int> at(int& refs) { return std::atomic_ref<int>(refs); }
  // Wraps, as the atomic operations do.
  static int sum(int a, int b) { return static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)); }
  static RefVerdict saturate(int& refs, RefVerdict verdict) {
    set(refs, kSaturated);
    return verdict;
  }

  int refs_;
};

}  // namespace penumbra
