#include "runtime/stacks/rule_cache.h"

#include "runtime/stacks/code_modules.h"

namespace penumbra::stacks {

alignas(64) constinit std::atomic<std::uint64_t> RuleCache::g_words[std::size_t{1} << kIndexBits];

void RuleCache::store(std::uintptr_t pc, SimpleRule rule, std::uint32_t epoch) {
  std::uint64_t word = tag_of(pc) | std::uint64_t{static_cast<unsigned>(rule.kind)} << 28 |
                       std::uint64_t{rule.cfa_offset / 8} << 8 | rule.rbp_slot / 8;
  std::atomic<std::uint64_t>& slot = g_words[index_of(pc)];
  slot.store(word, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (module_epoch() != epoch) slot.compare_exchange_strong(word, 0, std::memory_order_relaxed);
}

void RuleCache::clear() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (std::atomic<std::uint64_t>& slot : g_words) slot.store(0, std::memory_order_relaxed);
}

}  // namespace penumbra::stacks
