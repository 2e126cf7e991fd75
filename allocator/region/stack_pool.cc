#include "allocator/region/stack_pool.h"

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "allocator/region/thread_hint.h"
#include "runtime/base/check.h"
#include "runtime/base/os_process.h"

namespace penumbra::region {
namespace {

// Of the span that stacks may hold: the heap lives there, too.
constexpr std::size_t kShareOfSpan = 4;
// Abandoned stacks that one take() looks at.
constexpr int kAbandonedLooks = 64;
// What a thread that ends may still have in use below its stack pointer: the frames of leave() and below.
constexpr std::size_t kInUseBelow = 64 << 10;
// Pages that the kernel is asked about at once: 8 MiB, the usual stack.
constexpr std::size_t kAskedAtOnce = 2048;

// The lowest page of [low, high) that is in memory, `high` if none is; null where the kernel does not tell.
AppAddr lowest_in_core(AppAddr low, AppAddr high) {
  if (os::is_sealed()) return AppAddr();
  unsigned char in_core[kAskedAtOnce];
  while (low < high) {
    const std::size_t bytes = std::min<std::size_t>(high - low, kAskedAtOnce * kPageSize);
    if (!os::in_core(low, bytes, in_core).ok()) return AppAddr();
    for (std::size_t page = 0; page < bytes / kPageSize; ++page) {
      if ((in_core[page] & 1) != 0) return low + page * kPageSize;
    }
    low = low + bytes;
  }
  return high;
}

// Where the part of a stack ends that a cached one does not keep.
AppAddr deep_end(const Stack& stack) {
  return stack.bytes <= StackPool::kKept ? stack.low : stack.high() - StackPool::kKept;
}

}  // namespace

constinit StackPool g_process_stacks;

bool StackPool::init(RegionAllocator<LazyShadow>& regions) {
  const os::Result table = os::map_noreserve(round_up(kMost * sizeof(Stack), kPageSize));
  if (!table.ok()) return false;
  regions_ = &regions;
  most_bytes_ = regions.span().bytes() / kShareOfSpan;
  cache_count_ = std::clamp(os::possible_cpus(), 1u, kMaxCaches);
  stacks_ = table.address().ptr<Stack>();
  return true;
}

void StackPool::destroy() {
  if (stacks_ != nullptr) os::unmap(AppAddr(stacks_), round_up(kMost * sizeof(Stack), kPageSize)).ignore();
  this->~StackPool();
  new (this) StackPool;
}

StackPool::Cache& StackPool::local_cache() {
  return caches_[remembered_cpu() % cache_count_];
}

Stack* StackPool::take(std::size_t bytes, std::size_t guard, StackId allocated, std::uint32_t allocated_by) {
  PENUMBRA_DCHECK(bytes % kPageSize == 0 && guard % kPageSize == 0 && bytes != 0);
  poll();
  taken_.fetch_add(1, std::memory_order_relaxed);
  Stack* stack = pop_cached(bytes, guard);
  if (stack == nullptr && abandoned_.load(std::memory_order_relaxed) != 0) stack = pop_abandoned(bytes, guard);
  if (stack == nullptr) return make(bytes, guard, allocated);
  reused_.fetch_add(1, std::memory_order_relaxed);
  if (stack->poisoned < stack->high()) regions_->shadow().unpoison(stack->poisoned, stack->high() - stack->poisoned);
  stack->poisoned = stack->high();
  regions_->note_stack_use(stack->begin(), allocated, allocated_by);
  lend(*stack);
  return stack;
}

void StackPool::lend(Stack& stack) {
  stack.marks.store(0, std::memory_order_relaxed);
  stack.tid_word.store(nullptr, std::memory_order_relaxed);
  stack.state.store(StackState::kLent, std::memory_order_release);
}

// The one that has waited longest: a stale pointer into it had most time to show itself.
Stack* StackPool::pop_cached(std::size_t bytes, std::size_t guard) {
  Cache& cache = local_cache();
  const LockGuard lock(cache.lock);
  for (std::uint32_t i = 0; i < cache.count; ++i) {
    Stack& stack = stacks_[cache.stacks[i]];
    if (stack.bytes != bytes || stack.guard != guard) continue;
    cache.remove(i);
    return &stack;
  }
  return nullptr;
}

Stack* StackPool::pop_abandoned(std::size_t bytes, std::size_t guard) {
  const LockGuard lock(lock_);
  std::uint32_t before = 0;
  std::uint32_t number = abandoned_.load(std::memory_order_relaxed);
  for (int looks = 0; number != 0 && looks < kAbandonedLooks; ++looks) {
    Stack& stack = stacks_[number];
    if (stack.bytes == bytes && stack.guard == guard) {
      if (before == 0) {
        abandoned_.store(stack.next, std::memory_order_relaxed);
      } else {
        stacks_[before].next = stack.next;
      }
      return &stack;
    }
    before = number;
    number = stack.next;
  }
  return nullptr;
}

Stack* StackPool::make(std::size_t bytes, std::size_t guard, StackId allocated) {
  const std::size_t area = bytes + guard;
  if (area < bytes) return nullptr;
  if (held_bytes_.fetch_add(area, std::memory_order_relaxed) + area > most_bytes_) {
    held_bytes_.fetch_sub(area, std::memory_order_relaxed);
    return nullptr;
  }
  Request request;
  request.bytes = area;
  request.kind = AreaKind::kStack;
  request.stack = allocated;
  request.guard_before = guard;
  const int error = errno;
  const AppAddr begin = regions_->allocate(request);
  errno = error;
  Stack* const stack = begin.is_null() ? nullptr : take_record();
  if (stack == nullptr) {
    if (!begin.is_null()) regions_->free(begin, kNoStack);
    held_bytes_.fetch_sub(area, std::memory_order_relaxed);
    return nullptr;
  }
  // As glibc's stacks are: a huge page would make the first touch of each a matter of 2 MiB.
  os::advise(begin + guard, bytes, MADV_NOHUGEPAGE).ignore();
  stack->low = begin + guard;
  stack->bytes = bytes;
  stack->guard = guard;
  stack->poisoned = stack->high();
  lend(*stack);
  regions_->set_keeper(begin, stack->number);
  return stack;
}

Stack* StackPool::take_record() {
  {
    const LockGuard lock(lock_);
    if (unused_ != 0) {
      Stack& stack = stacks_[unused_];
      unused_ = stack.next;
      return &stack;
    }
  }
  std::uint32_t number = used_.load(std::memory_order_relaxed);
  do {
    if (number >= kMost) return nullptr;
  } while (!used_.compare_exchange_weak(number, number + 1, std::memory_order_relaxed));
  Stack* const stack = new (&stacks_[number]) Stack;
  stack->number = number;
  return stack;
}

void StackPool::give_record(Stack& stack) {
  const LockGuard lock(lock_);
  stack.next = unused_;
  unused_ = stack.number;
}

void StackPool::give(Stack& stack, StackId freed, std::uint32_t freed_by) {
  const std::uint8_t marks = stack.marks.load(std::memory_order_relaxed);
  AppAddr used;
  if ((marks & (Stack::kChanged | Stack::kDeep)) == 0) {
    used = lowest_in_core((marks & Stack::kEnded) != 0 ? deep_end(stack) : stack.low, stack.high());
  }
  if (used.is_null() || stack.high() - used > kKept) {
    free_area(stack, freed);
    return;
  }
  regions_->note_stack_end(stack.begin(), freed, freed_by);
  stack.poisoned = used;
  if (used < stack.high()) regions_->shadow().poison(used, stack.high() - used, shadow::ShadowTag::kStackGone);
  std::uint32_t evicted = 0;
  {
    Cache& cache = local_cache();
    const LockGuard lock(cache.lock);
    if (cache.count == kPerCpu) {
      evicted = cache.stacks[0];
      cache.remove(0);
    }
    stack.state.store(StackState::kCached, std::memory_order_release);
    cache.stacks[cache.count++] = stack.number;
  }
  if (evicted != 0) free_area(stacks_[evicted], kNoStack);
}

// The area becomes inaccessible as a whole, whatever was done to it (Guards::close_large).
void StackPool::free_area(Stack& stack, StackId freed) {
  const std::size_t area = area_bytes(stack);
  const AppAddr begin = stack.begin();
  stack.state.store(StackState::kNone, std::memory_order_release);
  regions_->set_keeper(begin, 0);
  PENUMBRA_CHECK(regions_->free(begin, freed) == FreeVerdict::kFreed);
  held_bytes_.fetch_sub(area, std::memory_order_relaxed);
  give_record(stack);
}

void StackPool::enter(Stack& stack, const std::atomic<std::int32_t>* tid_word) {
  stack.tid_word.store(tid_word, std::memory_order_release);
}

void StackPool::leave(Stack& stack, std::uint32_t tid, AppAddr sp) {
  stack.ended_by = tid;
  const AppAddr end = deep_end(stack);
  if (end != stack.low && stack.low <= sp && sp < stack.high() && lowest_in_core(stack.low, end) != end) {
    stack.marks.fetch_or(Stack::kDeep, std::memory_order_relaxed);
    const AppAddr unused(round_down(sp.value - kInUseBelow, kPageSize));
    if (stack.low < unused) os::advise(stack.low, std::min(end, unused) - stack.low, MADV_DONTNEED).ignore();
  }
  const std::uint8_t before = stack.marks.fetch_or(Stack::kEnded, std::memory_order_acq_rel);
  if ((before & Stack::kDetached) != 0) push_ending(stack);
}

void StackPool::detach(Stack& stack) {
  const std::uint8_t before = stack.marks.fetch_or(Stack::kDetached, std::memory_order_acq_rel);
  if ((before & (Stack::kEnded | Stack::kDetached)) == Stack::kEnded) push_ending(stack);
}

void StackPool::push_ending(Stack& stack) {
  std::uint32_t first = ending_.load(std::memory_order_relaxed);
  do {
    stack.next = first;
  } while (!ending_.compare_exchange_weak(first, stack.number, std::memory_order_release, std::memory_order_relaxed));
}

void StackPool::poll() {
  if (ending_.load(std::memory_order_relaxed) == 0) return;
  std::uint32_t number = ending_.exchange(0, std::memory_order_acquire);
  while (number != 0) {
    Stack& stack = stacks_[number];
    number = stack.next;
    const auto* const word = stack.tid_word.load(std::memory_order_acquire);
    if (word->load(std::memory_order_acquire) == 0) {
      give(stack, kNoStack, stack.ended_by);
    } else {
      push_ending(stack);
    }
  }
}

void StackPool::trim() {
  if (!is_initialized()) return;
  poll();
  for (unsigned c = 0; c < cache_count_; ++c) {
    std::uint32_t taken[kPerCpu];
    std::uint32_t count = 0;
    {
      const LockGuard lock(caches_[c].lock);
      count = caches_[c].count;
      std::copy(caches_[c].stacks, caches_[c].stacks + count, taken);
      caches_[c].count = 0;
    }
    for (std::uint32_t i = 0; i < count; ++i) free_area(stacks_[taken[i]], kNoStack);
  }
  std::uint32_t number;
  {
    const LockGuard lock(lock_);
    number = abandoned_.exchange(0, std::memory_order_relaxed);
  }
  while (number != 0) {
    Stack& stack = stacks_[number];
    number = stack.next;
    free_area(stack, kNoStack);
  }
}

Stack* StackPool::at(AppAddr a) const {
  if (!is_initialized()) return nullptr;
  const std::uint32_t number = regions_->keeper_of(a);
  return number != 0 ? &stacks_[number] : nullptr;
}

void StackPool::fork_prepare() {
  if (!is_initialized()) return;
  for (unsigned c = 0; c < cache_count_; ++c) caches_[c].lock.lock();
  lock_.lock();
}

void StackPool::fork_parent() {
  if (!is_initialized()) return;
  lock_.unlock();
  for (unsigned c = cache_count_; c > 0; --c) caches_[c - 1].lock.unlock();
}

void StackPool::fork_child(AppAddr thread_pointer) {
  if (!is_initialized()) return;
  fork_parent();
  abandon_others(thread_pointer);
}

void StackPool::fork_child_unprepared(AppAddr thread_pointer) {
  if (!is_initialized()) return;
  for (unsigned c = 0; c < cache_count_; ++c) {
    // Another thread was in the middle of changing this one, and may have left a stack in it twice: nobody gets them.
    if (caches_[c].lock.is_locked()) caches_[c].count = 0;
    caches_[c].lock.reset_after_fork();
  }
  lock_.reset_after_fork();
  abandon_others(thread_pointer);
}

// A stack that another thread was just taking, giving or freeing stays as it is: lent, to nobody.
void StackPool::abandon_others(AppAddr thread_pointer) {
  ending_.store(0, std::memory_order_relaxed);
  std::uint32_t list = abandoned_.load(std::memory_order_relaxed);
  for (std::uint32_t number = 1; number < used_.load(std::memory_order_relaxed); ++number) {
    Stack& stack = stacks_[number];
    if (stack.state.load(std::memory_order_acquire) != StackState::kLent || at(stack.low) != &stack) continue;
    if (stack.low <= thread_pointer && thread_pointer < stack.high()) continue;
    if ((stack.marks.load(std::memory_order_relaxed) & Stack::kChanged) != 0) continue;
    if (stack.tid_word.load(std::memory_order_relaxed) == nullptr) continue;  // about to begin, or being given back
    stack.state.store(StackState::kAbandoned, std::memory_order_relaxed);
    stack.next = list;
    list = number;
  }
  abandoned_.store(list, std::memory_order_relaxed);
}

StackPool::Counts StackPool::counts() const {
  Counts counts{};
  counts.held_bytes = held_bytes_.load(std::memory_order_relaxed);
  counts.taken = taken_.load(std::memory_order_relaxed);
  counts.reused = reused_.load(std::memory_order_relaxed);
  for (std::uint32_t number = 1; number < used_.load(std::memory_order_relaxed); ++number) {
    switch (stacks_[number].state.load(std::memory_order_relaxed)) {
      case StackState::kNone: break;
      case StackState::kLent: ++counts.lent; break;
      case StackState::kCached: ++counts.cached; break;
      case StackState::kAbandoned: ++counts.abandoned; break;
    }
  }
  return counts;
}

void StackPool::validate() const {
  if (!is_initialized()) return;
  for (unsigned c = 0; c < cache_count_; ++c) {
    const Cache& cache = caches_[c];
    const LockGuard lock(cache.lock);
    PENUMBRA_CHECK(cache.count <= kPerCpu);
    for (std::uint32_t i = 0; i < cache.count; ++i) {
      const Stack& stack = stacks_[cache.stacks[i]];
      PENUMBRA_CHECK(stack.state.load(std::memory_order_acquire) == StackState::kCached);  // T1
      PENUMBRA_CHECK(at(stack.low) == &stack && at(stack.high() - 1) == &stack);
      for (AppAddr a = stack.poisoned; a < stack.high(); a = a + shadow::kGranuleSize) {  // T2
        PENUMBRA_CHECK_OP(regions_->shadow().units().shadow_byte(a), ==,
                          static_cast<std::uint8_t>(shadow::ShadowTag::kStackGone));
      }
      for (std::uint32_t j = 0; j < i; ++j) PENUMBRA_CHECK(cache.stacks[j] != cache.stacks[i]);
    }
  }
  const std::size_t held = held_bytes_.load();
  std::size_t counted = 0;
  for (std::uint32_t number = 1; number < used_.load(); ++number) {
    if (stacks_[number].state.load() != StackState::kNone) counted += area_bytes(stacks_[number]);
  }
  PENUMBRA_CHECK(counted <= held || held_bytes_.load() != held);  // T3; what is being made is not counted yet
}

}  // namespace penumbra::region
