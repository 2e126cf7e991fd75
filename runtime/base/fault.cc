#include "runtime/base/fault.h"

#include <atomic>

namespace penumbra {
namespace {

constinit std::atomic<FaultHook> g_hook{nullptr};
constinit std::atomic<std::uint64_t> g_raised{0};

}  // namespace

void set_fault_hook(FaultHook hook) {
  g_hook.store(hook, std::memory_order_release);
}

void raise_fault(const Fault& fault) {
  g_raised.fetch_add(1, std::memory_order_relaxed);
  if (const FaultHook hook = g_hook.load(std::memory_order_acquire)) hook(fault);
}

std::uint64_t faults_raised() {
  return g_raised.load(std::memory_order_relaxed);
}

}  // namespace penumbra
