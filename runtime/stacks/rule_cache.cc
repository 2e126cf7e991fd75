#include "runtime/stacks/rule_cache.h"

#include "runtime/stacks/code_modules.h"

namespace penumbra::stacks {
namespace {

constinit std::atomic<std::uint32_t> g_turn{0};  // which word of a full set goes next; lost counts do no harm

}  // namespace

constinit RuleCache::Set RuleCache::g_sets[std::size_t{1} << kSetBits];

void RuleCache::store(std::uintptr_t pc, SimpleRule rule, std::uint32_t epoch) {
  std::uint64_t word = tag_of(pc) | std::uint64_t{static_cast<unsigned>(rule.kind)} << (kTagShift - 2) |
                       std::uint64_t{rule.cfa_offset / 8} << 8 | rule.rbp_slot / 8;
  Set& set = g_sets[set_of(pc)];
  unsigned way = 0;
  for (; way < 2; ++way) {
    const std::uint64_t there = set.words[way].load(std::memory_order_relaxed);
    if (there == word) return;
    if (there == 0) break;
  }
  if (way == 2) {
    const std::uint32_t turn = g_turn.load(std::memory_order_relaxed);
    g_turn.store(turn + 1, std::memory_order_relaxed);
    way = turn % 2;
  }
  set.words[way].store(word, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (module_epoch() != epoch) set.words[way].compare_exchange_strong(word, 0, std::memory_order_relaxed);
}

void RuleCache::clear() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (Set& set : g_sets) {
    for (std::atomic<std::uint64_t>& word : set.words) word.store(0, std::memory_order_relaxed);
  }
}

}  // namespace penumbra::stacks
