#include "runtime/preload/bootstrap.h"

#include "runtime/base/config.h"

#include <atomic>
#include <cstdint>

namespace penumbra::preload {
namespace {

constexpr std::size_t kSizeField = 16;  // keeps the block behind it aligned

alignas(kSizeField) constinit std::uint8_t g_arena[kBootstrapBytes] = {};
constinit std::atomic<std::size_t> g_used{0};

}  // namespace

void* bootstrap_allocate(std::size_t bytes, std::size_t alignment) {
  if (alignment < kSizeField) alignment = kSizeField;
  if (bytes > kBootstrapBytes || alignment > kBootstrapBytes) return nullptr;
  const auto base = reinterpret_cast<std::uintptr_t>(g_arena);
  std::size_t used = g_used.load(std::memory_order_relaxed);
  std::size_t begin;
  do {
    begin = round_up(base + used + kSizeField, alignment) - base;
    if (begin + bytes > kBootstrapBytes) return nullptr;
  } while (!g_used.compare_exchange_weak(used, round_up(begin + bytes, kSizeField), std::memory_order_relaxed));
  *reinterpret_cast<std::size_t*>(g_arena + begin - kSizeField) = bytes;
  return g_arena + begin;
}

bool bootstrap_owns(const void* p) {
  const auto* const byte = static_cast<const std::uint8_t*>(p);
  return byte >= g_arena && byte < g_arena + kBootstrapBytes;
}

std::size_t bootstrap_bytes(const void* p) {
  return *reinterpret_cast<const std::size_t*>(static_cast<const std::uint8_t*>(p) - kSizeField);
}

}  // namespace penumbra::preload
