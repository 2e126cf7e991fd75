// std::atomic that counts: included before everything else of a build, it takes the place of std::atomic in our code.
//
// Counted are read-modify-writes and sequentially consistent stores (what x86 locks the line for), by thread, and the
// cache lines that they went to. Plain loads and stores are not: they cost what others' writes to the line make them.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace counting {

// Locked operations of this thread since `enabled` was set: line -> how many.
struct Locked {
  bool enabled = false;
  std::unordered_map<std::uintptr_t, std::uint64_t> by_line;
};
inline thread_local Locked locked;

inline void note(const void* at) {
  if (!locked.enabled) return;
  locked.enabled = false;  // the map's own work does not count
  ++locked.by_line[reinterpret_cast<std::uintptr_t>(at) / 64];
  locked.enabled = true;
}

}  // namespace counting

// The only way to be found under std:: by the name that the macro below makes of std::atomic.
namespace std {

template <class T>
struct counting_atomic : atomic<T> {
  using Base = atomic<T>;
  using Base::Base;
  constexpr counting_atomic() noexcept = default;

  void store(T value, memory_order order = memory_order_seq_cst) noexcept {
    if (order == memory_order_seq_cst) counting::note(this);
    Base::store(value, order);
  }
  T exchange(T value, memory_order order = memory_order_seq_cst) noexcept {
    counting::note(this);
    return Base::exchange(value, order);
  }
  template <class... Orders>
  bool compare_exchange_strong(T& expected, T value, Orders... orders) noexcept {
    counting::note(this);
    return Base::compare_exchange_strong(expected, value, orders...);
  }
  template <class... Orders>
  bool compare_exchange_weak(T& expected, T value, Orders... orders) noexcept {
    counting::note(this);
    return Base::compare_exchange_weak(expected, value, orders...);
  }
  template <class U>
  T fetch_add(U value, memory_order order = memory_order_seq_cst) noexcept {
    counting::note(this);
    return Base::fetch_add(value, order);
  }
  template <class U>
  T fetch_sub(U value, memory_order order = memory_order_seq_cst) noexcept {
    counting::note(this);
    return Base::fetch_sub(value, order);
  }
};

}  // namespace std

#define atomic counting_atomic
