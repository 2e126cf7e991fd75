#include "runtime/stacks/trail.h"

#include "runtime/base/os_linux.h"
#include "runtime/base/thread_id.h"
#include "runtime/stacks/code_modules.h"
#include "runtime/stacks/depot.h"
#include "runtime/stacks/rule_cache.h"
#include "runtime/stacks/stack_memory.h"

namespace penumbra::stacks {
namespace {

// Threads that have a trail at a time. It is no thread-local variable: that would come out of the program's stacks,
// some of which are small. Slots of threads that are gone are taken over when none is free.
constexpr std::size_t kTrails = 128;
// Records by a thread that found no slot before it looks again.
constexpr std::uint32_t kRetry = 4096;

alignas(64) constinit Trail g_trails[kTrails];

// A stack that the depot has, known by its whole 64-bit hash: cc1 goes round in twenty thousand stacks, and each look into
// the depot misses the cache several times. Two stacks that differ in one frame never share a hash (the multiplier is
// odd), others by chance, one in 2^64. All threads write; the words are told to belong together by what they add up to.
class RecentStack {
 public:
  StackId id_of(std::uint64_t polynomial) const {
    const std::uint64_t id = id_.load(std::memory_order_acquire);
    return (key_.load(std::memory_order_relaxed) ^ id * kDepotMultiplier) == polynomial ? static_cast<StackId>(id)
                                                                                        : kNoStack;
  }

  void set(std::uint64_t polynomial, StackId id) {
    key_.store(polynomial ^ id * kDepotMultiplier, std::memory_order_relaxed);
    id_.store(id, std::memory_order_release);
  }

 private:
  std::atomic<std::uint64_t> key_{0};
  std::atomic<std::uint64_t> id_{0};
};

constexpr std::size_t kRecentStacks = 1u << 14;  // 256 KiB, of which a process touches what it uses

alignas(64) constinit RecentStack g_recent[kRecentStacks];

struct ThreadState {
  Trail* trail = nullptr;
  std::uint32_t retry_in = 0;
  bool is_busy = false;  // the thread is using its trail; true in a signal handler that interrupted that
};

constinit thread_local ThreadState t_state;

}  // namespace

Trail* Trail::claim(std::uint32_t tid) {
  for (const bool from_the_dead : {false, true}) {
    for (Trail& trail : g_trails) {
      std::uint32_t owner = trail.owner_.load(std::memory_order_relaxed);
      if (owner != 0 && (!from_the_dead || os::is_thread_alive(static_cast<int>(owner)))) continue;
      if (!trail.owner_.compare_exchange_strong(owner, tid, std::memory_order_acquire)) continue;
      trail.forget();
      return &trail;
    }
  }
  return nullptr;
}

Trail* Trail::mine() {
  ThreadState& state = t_state;
  const std::uint32_t tid = current_tid();
  // In a fork's child the slot still carries the parent's id, and a new thread might take it for a dead one's.
  if (state.trail != nullptr && state.trail->owner_.load(std::memory_order_relaxed) == tid) [[likely]] {
    return state.trail;
  }
  if (state.retry_in > 0) {
    --state.retry_in;
    return nullptr;
  }
  state.trail = claim(tid);
  if (state.trail == nullptr) state.retry_in = kRetry;
  return state.trail;
}

void Trail::fork_child() {
  const ThreadState& state = t_state;
  if (state.trail != nullptr && !state.is_busy) state.trail->owner_.store(current_tid(), std::memory_order_relaxed);
}

bool Trail::try_record(const CodeContext& from, std::size_t depth, StackId& id) {
  ThreadState& state = t_state;
  if (state.is_busy) return false;
  state.is_busy = true;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  Trail* const trail = mine();
  const bool done = trail != nullptr && trail->record_unless_paused(from, depth, id);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  state.is_busy = false;
  return done;
}

bool Trail::record_unless_paused(const CodeContext& from, std::size_t depth, StackId& id) {
  if (pause_ > 0) {
    --pause_;
    return false;
  }
  if (record(from, depth, id)) {
    failures_ = 0;
    return true;
  }
  forget();
  pause_ = 1u << failures_;
  if (failures_ < kMaxFailures) ++failures_;
  return false;
}

void Trail::forget() {
  top_ = kNodes;
  is_complete_ = false;
  hash_[kNodes] = 0;
}

// How far the trail still holds from `node` on, where `wanted` nodes are asked for. Reads nothing at or above `limit`.
Trail::Match Trail::verify(std::size_t node, std::size_t wanted, std::uintptr_t limit) const {
  const std::size_t there = kNodes - node;
  const std::size_t end = node + (wanted < there ? wanted : there);
  const bool reaches = wanted <= there || is_complete_;
  // Mostly all of it holds, so all of it is compared before the one branch. sp_ ascends: below the limit is the last.
  if (end > node && sp_[end - 1] <= limit) [[likely]] {
    std::uintptr_t difference = 0;
    for (std::size_t n = node; n + 1 < end; ++n) {
      difference |= (load_word(sp_[n + 1] - 8) ^ pc_[n + 1]) | (load_word(slot_[n]) ^ bp_[n + 1]);
    }
    if (difference == 0) return {end - 1, reaches};
  }
  std::size_t i = node;
  while (i + 1 < end && sp_[i + 1] <= limit && load_word(sp_[i + 1] - 8) == pc_[i + 1] &&
         load_word(slot_[i]) == bp_[i + 1]) {
    ++i;
  }
  return {i, i + 1 >= end && reaches};
}

bool Trail::add_fresh(const Place& place, std::uintptr_t bp_slot) {
  if (fresh_ == kMaxFresh) return false;
  fresh_pc_[fresh_] = place.pc;
  fresh_sp_[fresh_] = place.sp;
  fresh_bp_[fresh_] = place.bp;
  fresh_slot_[fresh_] = bp_slot;
  ++fresh_;
  return true;
}

// Frames that stand, but behind which the trail is of no use: they move to the fresh ones.
bool Trail::take_over(std::size_t first, std::size_t last) {
  for (std::size_t i = first; i <= last; ++i) {
    if (!add_fresh(place_of(i), slot_[i] == kept_bp(i) ? 0 : slot_[i])) return false;
  }
  return true;
}

// The fresh frames join nothing: they are the new trail.
bool Trail::end_walk(bool is_complete) {
  is_complete_ = is_complete;
  join_ = kNodes;
  return true;
}

// Leaves in fresh_* the frames that are not in the trail, and in join_ the node that they continue with. False where
// the ordinary way must be taken.
bool Trail::walk(const CodeContext& from, std::size_t depth, std::uintptr_t limit) {
  Place at{from.pc, from.sp, from.bp};
  std::size_t node = top_;
  fresh_ = 0;
  while (true) {
    while (node < kNodes && sp_[node] < at.sp) ++node;
    if (node < kNodes && place_of(node) == at) {
      const Match match = verify(node, fresh_ < depth ? depth - fresh_ : 0, limit);
      if (match.suffices) {
        join_ = node;
        return true;
      }
      if (!take_over(node, match.last)) return false;
      at = place_of(match.last);
      node = match.last + 1;
    } else if (!add_fresh(at, 0)) {
      return false;
    }
    if (fresh_ >= depth + kSlack || fresh_ == kMaxFresh) return end_walk(false);
    switch (follow_rule(at, 1, limit, fresh_slot_[fresh_ - 1])) {
      case Link::kCaller: break;
      case Link::kOutermost: return end_walk(true);
      case Link::kUnknown: return fresh_ >= depth && end_walk(false);
    }
  }
}

// Puts the fresh frames in front of join_. False, with nothing done, where there is no room.
bool Trail::join_fresh() {
  if (fresh_ > join_) return false;
  std::size_t node = join_;
  for (std::size_t i = fresh_; i-- > 0;) {
    --node;
    pc_[node] = fresh_pc_[i];
    sp_[node] = fresh_sp_[i];
    bp_[node] = fresh_bp_[i];
    slot_[node] = fresh_slot_[i] != 0 ? fresh_slot_[i] : kept_bp(node);
    hash_[node] = hash_[node + 1] * kDepotMultiplier + pc_[node];
    ids_[node] = kNoStack;
  }
  top_ = node;
  return true;
}

StackId Trail::id_of(std::size_t node, std::size_t count) const {
  const std::uint64_t polynomial = hash_[node] - hash_[node + count] * depot_power(count);
  const std::uint32_t hash = depot_hash_finish(polynomial);
  RecentStack& recent = g_recent[hash % kRecentStacks];
  if (const StackId known = recent.id_of(polynomial); known != kNoStack) return known;
  const StackId id = depot_put_hashed(&pc_[node], count, hash);
  recent.set(polynomial, id);
  return id;
}

StackMemos* Trail::memos() {
  if (memos_ == nullptr && records_ < kRecordsBeforeMemos && ++records_ == kRecordsBeforeMemos) {
    const os::Result memory = os::map_noreserve(round_up(sizeof(StackMemos), kPageSize));
    if (memory.ok()) memos_ = memory.address().ptr<StackMemos>();
  }
  return memos_;
}

// Afterwards the stack's frames are the nodes from top_ on, and ids_[top_] its name. False as in try_record().
bool Trail::record_by_walk(const CodeContext& from, std::size_t depth, std::uintptr_t limit) {
  if (!walk(from, depth, limit)) return false;
  if (!join_fresh()) {
    forget();
    if (!walk(from, depth, limit) || !join_fresh()) return false;
  }
  if (ids_[top_] == kNoStack) ids_[top_] = id_of(top_, count_of(depth));
  return true;
}

bool Trail::record(const CodeContext& from, std::size_t depth, StackId& id) {
  const RecordTerms terms{module_epoch(), static_cast<std::uint32_t>(depth)};
  if (terms != terms_) {
    forget();
    terms_ = terms;
  }
  StackMemory memory;
  if (!memory.move_to(from.sp)) return false;
  StackMemos* const memos = this->memos();
  if (memos != nullptr) {
    id = memos->find(from, terms, memory.limit());
    if (id != kNoStack) return true;
  }
  if (!record_by_walk(from, depth, memory.limit())) return false;
  id = ids_[top_];
  if (memos != nullptr)
    memos->offer(from, terms, id, {&pc_[top_], &sp_[top_], &bp_[top_], &slot_[top_], count_of(depth)});
  return true;
}

}  // namespace penumbra::stacks
