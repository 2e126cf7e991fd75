// The stack a thread recorded last, kept frame by frame, so that the next one need only be compared with it.
//
// A program allocates again and again from nearly the same stack. Walking it follows a chain of dependent loads, 6 ns
// a frame; checking that it is still the same needs two independent loads a frame, 1 ns. The unwinder is a function of
// pc, sp, bp and the words it read. So if a frame of the new stack has the pc, sp and bp of a frame in the trail, and
// each word that was read from there outwards (return addresses, saved bp) is unchanged, all frames outwards are too.
//
//     index   top_                                     kNodes        arrays grow downwards, as the stack does:
//             innermost ... outermost known            end           pc_[top_, top_+n) is what the depot stores
//
// I1  node i+1 is the caller of node i as the words were when the trail was made; sp_ grows with the index.
// I2  hash_[i] = hash_[i+1] * kDepotMultiplier + pc_[i], so any run of nodes has its depot hash in constant time.
// I3  ids_[i], unless kNoStack, names the stack of `terms_.depth` frames that starts at node i. Nodes outwards of a node
//     never change while it stays.
// Only frames with simple rules (rule_cache.h) are kept. A stack with any other frame, or one that is not the thread's
// own, is walked the ordinary way, as everything is in a signal handler that interrupts a use of the trail (and ever
// after, in that thread, if the handler leaves by longjmp: nothing tells that from a handler that still runs).
//
// zone: signal-safe
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"
#include "runtime/base/config.h"
#include "runtime/base/stack_id.h"
#include "runtime/stacks/simple_step.h"
#include "runtime/stacks/stack_memo.h"

namespace penumbra::stacks {

class Trail {
 public:
  // Unwinds and stores; false, with nothing stored, where the ordinary way must be taken.
  static bool try_record(const CodeContext& from, std::size_t depth, StackId& id);
  // In the only thread of a new child, which has its stack from its parent: its trail holds there as well.
  static void fork_child();

 private:
  static constexpr std::size_t kNodes = 160;
  // Frames walked beyond the depth asked for when a trail is begun, so that a somewhat shallower stack still finds
  // enough of them.
  static constexpr std::size_t kSlack = 16;
  static constexpr std::size_t kMaxFresh = kMaxStackFrames + kSlack;
  static_assert(kMaxFresh <= kNodes, "an empty trail takes one whole walk");
  // After n failures in a row the next 2^n records do not try, so that a thread whose stacks are never simple pays
  // little for it.
  static constexpr std::uint32_t kMaxFailures = 6;
  // Records before a thread gets memos, 120 KiB at most: one that allocates less walks.
  static constexpr std::uint32_t kRecordsBeforeMemos = 4096;

  // Nodes that a frame of the new stack was found to be, outwards up to and including `last`.
  struct Match {
    std::size_t last = 0;
    bool suffices = false;  // the trail goes on as far as is asked for, or to the end of the stack
  };

  static Trail* mine();
  static Trail* claim(std::uint32_t tid);

  bool record_unless_paused(const CodeContext& from, std::size_t depth, StackId& id);
  bool record(const CodeContext& from, std::size_t depth, StackId& id);
  bool walk(const CodeContext& from, std::size_t depth, std::uintptr_t limit);
  Match verify(std::size_t node, std::size_t wanted, std::uintptr_t limit) const;
  bool add_fresh(const Place& place, std::uintptr_t bp_slot);
  bool take_over(std::size_t first, std::size_t last);
  bool join_fresh();
  bool end_walk(bool is_complete);
  void forget();
  StackId id_of(std::size_t node, std::size_t count) const;
  bool record_by_walk(const CodeContext& from, std::size_t depth, std::uintptr_t limit);
  StackMemos* memos();

  std::size_t count_of(std::size_t depth) const { return kNodes - top_ < depth ? kNodes - top_ : depth; }
  Place place_of(std::size_t node) const { return {pc_[node], sp_[node], bp_[node]}; }
  std::uintptr_t kept_bp(std::size_t node) const { return reinterpret_cast<std::uintptr_t>(&bp_[node]); }

  std::atomic<std::uint32_t> owner_{0};  // thread id; 0: free
  RecordTerms terms_;                    // those of all nodes and ids
  std::uint32_t failures_ = 0;           // since the last success, at most kMaxFailures
  std::uint32_t pause_ = 0;              // records that go the ordinary way before the next try
  std::uint32_t records_ = 0;            // until there are memos, or none can be had
  StackMemos* memos_ = nullptr;          // stays when another thread takes this over
  std::size_t top_ = 0;       // set by forget(), with all that is not 0 in an empty trail: g_trails lies in .bss
  bool is_complete_ = false;  // the last node is the outermost frame there is

  std::uintptr_t pc_[kNodes] = {};
  std::uintptr_t sp_[kNodes] = {};
  std::uintptr_t bp_[kNodes] = {};
  std::uintptr_t slot_[kNodes] = {};     // where bp_[i + 1] was read from; kept_bp(i) where bp was kept
  std::uint64_t hash_[kNodes + 1] = {};  // hash_[kNodes] is 0
  StackId ids_[kNodes] = {};

  // Frames of the walk in progress, innermost first, until it is known where they join the trail.
  std::size_t fresh_ = 0;
  std::size_t join_ = 0;  // the first node that stays
  std::uintptr_t fresh_pc_[kMaxFresh] = {};
  std::uintptr_t fresh_sp_[kMaxFresh] = {};
  std::uintptr_t fresh_bp_[kMaxFresh] = {};
  std::uintptr_t fresh_slot_[kMaxFresh] = {};  // 0 where bp was kept
};

}  // namespace penumbra::stacks
