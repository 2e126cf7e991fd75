// Addresses of the checked program and of its shadow, as two types that do not convert.
//
// Both are plain numbers: nothing is dereferenced without saying so (`ptr()`). A size is in bytes everywhere.
//
// zone: signal-safe
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace penumbra {

template <class Tag>
struct Address {
  std::uintptr_t value = 0;

  constexpr Address() = default;
  constexpr explicit Address(std::uintptr_t v) : value(v) {}
  explicit Address(const volatile void* p) : value(reinterpret_cast<std::uintptr_t>(p)) {}

  template <class T = std::uint8_t>
  T* ptr() const {
    return reinterpret_cast<T*>(value);
  }

  constexpr bool is_null() const { return value == 0; }
  constexpr Address operator+(std::size_t bytes) const { return Address(value + bytes); }
  constexpr Address operator-(std::size_t bytes) const { return Address(value - bytes); }
  constexpr std::size_t operator-(Address other) const { return value - other.value; }
  constexpr auto operator<=>(const Address&) const = default;
};

using AppAddr = Address<struct AppAddrTag>;        // a byte of the checked program
using ShadowAddr = Address<struct ShadowAddrTag>;  // a byte of the shadow

// [begin, end) in the checked program.
struct AppRange {
  AppAddr begin;
  AppAddr end;

  constexpr std::size_t bytes() const { return end - begin; }
  constexpr bool contains(AppAddr a) const { return begin <= a && a < end; }
};

// Where code was when it did something worth remembering: enough to start unwinding in the *caller* of the
// function that took it. `pc` is a return address (or the pc of an interrupted instruction), `sp` the stack
// pointer as it is once that call has returned, `bp` the frame pointer register at that point.
struct CodeContext {
  std::uintptr_t pc = 0;
  std::uintptr_t sp = 0;
  std::uintptr_t bp = 0;
};

// The context of whoever called the function this stands in. Needs a frame pointer in that function, which
// every in-process translation unit has (-fno-omit-frame-pointer).
#define PENUMBRA_CALLER()                                                                     \
  (::penumbra::CodeContext{reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)),     \
                           reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) + 16, \
                           *reinterpret_cast<const std::uintptr_t*>(__builtin_frame_address(0))})

}  // namespace penumbra
