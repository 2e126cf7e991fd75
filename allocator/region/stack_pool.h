// Thread stacks out of the region allocator, and a cache of them for each CPU: the kernel's VMAP_STACK.
//
//     | guard | low ............ stack ............ high | guard of the area |
//     inaccessible        sparse: shadow untouched
//
//              take()                    give()
//     (none) ---------> lent to a thread -------> cached -----> lent again
//                          |    |                   |
//                          |    | leave()           | evict, trim
//                          |    v                   v
//                          |  ending --poll()--> as give()      freed area: inaccessible at once
//                          +--- fork, in the child: abandoned -> lent again
//
// A stack may be given back only when the kernel has left it, which nobody says of a detached thread. glibc has the
// thread's id in the control block at the top of the stack, as the word that the kernel sets to 0 when the thread has
// left user mode for good (CLONE_CHILD_CLEARTID): what pthread_join() waits for, and what glibc's own cache of stacks
// goes by. So leave() puts the stack of a detached thread that is about to end on a list, and poll() takes back those
// whose word is 0. The word alone is not enough: a joinable thread's block is read by whoever joins it, and a thread's
// block is 0 before it begins; both marks, detached and ended, must be there.
//
// A cached stack keeps the memory that its thread touched, poisoned down to the lowest page that is in memory; shadow
// below that is as it was, untouched. Its record and area stay live. Where the thread went deeper than kKept the area is
// freed instead. (What destructors of thread-specific data use after leave() is seen only down to kKept.)
//
// T1  a stack is in exactly one state; cached ones lie in exactly one cache; the keeper's number of an area leads to
//     its stack, and only live stack areas have one.
// T2  shadow of [poisoned, high) of a cached stack says "stack of a thread that has ended"; poisoned == high otherwise.
// T3  held_bytes() is the areas of all stacks that are not kNone.
// Locks: that of a cache, or that of the records, one at a time and none over a call into the region allocator.
//
// zone: nomalloc
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allocator/region/region_allocator.h"
#include "runtime/base/locks.h"

namespace penumbra::region {

enum class StackState : std::uint8_t { kNone, kLent, kCached, kAbandoned };

struct Stack {
  AppAddr low;                  // of the bytes that a thread may use
  std::size_t bytes = 0;        // whole pages
  std::size_t guard = 0;        // bytes of the guard below
  std::size_t asked_guard = 0;  // what the program asked for and is told
  AppAddr poisoned;             // T2
  std::uint32_t number = 0;     // of this record
  std::uint32_t next = 0;       // in the list of ending, abandoned or unused ones
  std::uint32_t ended_by = 0;   // thread id, from leave()
  std::atomic<StackState> state{StackState::kNone};
  std::atomic<std::uint8_t> marks{0};
  std::atomic<const std::atomic<std::int32_t>*> tid_word{nullptr};

  AppAddr begin() const { return low - guard; }
  AppAddr high() const { return low + bytes; }

  // Marks of a stack that is lent.
  static constexpr std::uint8_t kDetached = 1;
  static constexpr std::uint8_t kEnded = 2;
  static constexpr std::uint8_t kDeep = 8;     // more of it than a cached stack keeps was used
  static constexpr std::uint8_t kChanged = 4;  // the program mapped or protected parts of it: not to be used again
};

class StackPool {
 public:
  static constexpr unsigned kPerCpu = 8;                        // stacks of one cache
  static constexpr std::size_t kKept = std::size_t{256} << 10;  // memory of a cached stack
  static constexpr std::uint32_t kMost = 1u << 18;              // stacks at once; those beyond are refused

  constexpr StackPool() = default;
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;

  // Once; `regions` is initialized and outlives the pool. False where the kernel has no memory.
  bool init(RegionAllocator<LazyShadow>& regions);
  void destroy();
  bool is_initialized() const { return stacks_ != nullptr; }

  // A stack of `bytes` above a guard of `guard` bytes, whole pages both: a cached one of that size, its shadow clean,
  // else a fresh one. Null where there is none: no memory, or stacks hold a quarter of the span already.
  Stack* take(std::size_t bytes, std::size_t guard, StackId allocated, std::uint32_t allocated_by);
  // Its thread is gone, or never began.
  void give(Stack& stack, StackId freed, std::uint32_t freed_by);

  // What tells about the thread that runs on it: called by itself, before it runs anything of the program's.
  void enter(Stack& stack, const std::atomic<std::int32_t>* tid_word);
  // Called by the thread when it ends, `sp` being its stack pointer, and for a thread that is detached while it runs.
  // What lies deep is dropped then: a thread that nobody joins must not hold megabytes (glibc does the same).
  void leave(Stack& stack, std::uint32_t tid, AppAddr sp);
  void detach(Stack& stack);
  void note_change(Stack& stack) { stack.marks.fetch_or(Stack::kChanged, std::memory_order_relaxed); }

  // The stack that is lent or kept around `a`, guards included; null where there is none. Signal-safe.
  Stack* at(AppAddr a) const;

  // Takes back the stacks of detached threads that are gone. take() and trim() do.
  void poll();
  // Frees all areas that no thread runs on.
  void trim();

  // In a child: all threads but the one whose control block lies at `thread_pointer` are gone. Their stacks are lent
  // again, but not poisoned: the child may use what lies there (lists of waiters, structures that were passed around).
  void fork_prepare();
  void fork_parent();
  void fork_child(AppAddr thread_pointer);
  // The same without fork_prepare(): locks are reset.
  void fork_child_unprepared(AppAddr thread_pointer);

  struct Counts {
    std::uint64_t lent, cached, abandoned, held_bytes;
    std::uint64_t taken, reused;  // since the start
  };
  Counts counts() const;

  // T1..T3. Others may work meanwhile; what changes is left out.
  void validate() const;

 private:
  static constexpr unsigned kMaxCaches = 64;

  struct alignas(64) Cache {
    mutable Mutex lock;
    std::uint32_t count = 0;
    std::uint32_t stacks[kPerCpu]{};  // by number, the oldest first

    void remove(std::uint32_t i) {
      for (--count; i < count; ++i) stacks[i] = stacks[i + 1];
    }
  };

  Cache& local_cache();
  Stack* pop_cached(std::size_t bytes, std::size_t guard);
  Stack* pop_abandoned(std::size_t bytes, std::size_t guard);
  Stack* make(std::size_t bytes, std::size_t guard, StackId allocated);
  Stack* take_record();
  void give_record(Stack& stack);
  void free_area(Stack& stack, StackId freed);
  static void lend(Stack& stack);
  void push_ending(Stack& stack);
  void abandon_others(AppAddr thread_pointer);
  static std::size_t area_bytes(const Stack& stack) { return stack.guard + stack.bytes; }

  RegionAllocator<LazyShadow>* regions_ = nullptr;
  Stack* stacks_ = nullptr;  // kMost records, by number; the first stands for none
  std::size_t most_bytes_ = 0;
  unsigned cache_count_ = 0;
  std::atomic<std::uint32_t> used_{1};
  std::atomic<std::uint32_t> ending_{0};
  std::atomic<std::size_t> held_bytes_{0};
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<std::uint64_t> reused_{0};
  mutable Mutex lock_;  // of the two lists
  std::uint32_t unused_ = 0;
  std::atomic<std::uint32_t> abandoned_{0};
  Cache caches_[kMaxCaches]{};
};

// The process's own, over its regions. Not initialized: threads have the stacks that glibc gives them.
extern StackPool g_process_stacks;

inline StackPool& process_stacks() {
  return g_process_stacks;
}

}  // namespace penumbra::region
