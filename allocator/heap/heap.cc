#include "allocator/heap/heap.h"

#include "allocator/heap/internal.h"
#include "runtime/base/check.h"
#include "runtime/base/raw_memory.h"
#include "runtime/base/thread_id.h"
#include "shadow/check.h"
#include "shadow/poison.h"

#include <errno.h>
#include <sys/auxv.h>

#include <algorithm>
#include <new>

namespace penumbra::heap {

constinit Heap g_heap;
constinit std::uint64_t g_header_secret = 0;

namespace {

constinit thread_local QuarantineBatch t_batch;

// Keeps errno over a scope: mimalloc's system calls set it.
class ErrnoScope {
 public:
  ErrnoScope() : saved_(errno) {}

  ~ErrnoScope() { errno = saved_; }

  ErrnoScope(const ErrnoScope&) = delete;
  ErrnoScope& operator=(const ErrnoScope&) = delete;

 private:
  int saved_;
};

void validate_at(int level) {
  if (PENUMBRA_VALIDATE >= level) validate();
}

// A block of at least `bytes` from an arena; more arenas while there are any.
AppAddr take_block(std::size_t bytes) {
  const ErrnoScope keep_errno;
  for (;;) {
    const std::size_t seen = g_heap.arenas.count();
    void* const block = g_heap.mimalloc.malloc(bytes);
    if (block != nullptr) [[likely]] {
      return AppAddr(block);
    }
    if (!g_heap.arenas.grow(seen)) return AppAddr();
    validate_at(1);
  }
}

void return_block(void* block) {
  g_heap.mimalloc.free(block);
}

void fill_object(AppAddr object, const Request& request) {
  if (request.zero) {
    raw_set(object.ptr<void>(), 0, request.bytes);
  } else if (g_heap.junk_bytes != 0) {
    raw_set(object.ptr<void>(), kJunk, std::min(request.bytes, g_heap.junk_bytes));
  }
}

}  // namespace

bool init(const Options& options) {
  if (!bind_mimalloc(g_heap.mimalloc)) return false;
  g_heap.span = {shadow::span().begin, shadow::span().end};
  // 16 random bytes that the kernel made for this process.
  if (const unsigned long random = getauxval(AT_RANDOM)) {
    raw_copy(&g_header_secret, reinterpret_cast<const void*>(random + 8), sizeof g_header_secret);  // not aligned
  }
  g_heap.junk_bytes = options.junk;
  g_heap.quarantine.init(options.quarantine, return_block, return_large);
  return g_heap.arenas.init(g_heap.span, g_heap.mimalloc.manage_os_memory);
}

void* allocate(const Request& request) {
  PENUMBRA_DCHECK(is_power_of_two(request.alignment));
  if (request.bytes > PTRDIFF_MAX || request.alignment >= kUserAddressEnd) {
    errno = ENOMEM;
    return nullptr;
  }
  const std::size_t needed =
      prefix_bytes(request.alignment) + round_up(request.bytes, shadow::kGranuleSize) + right_redzone(request.bytes);
  // A thread past its end has no mimalloc heap any more, and nobody would give back a new one.
  if (needed > kLargestBlock || t_batch.is_closed) return allocate_large(request);
  const AppAddr block = take_block(needed);
  if (block.is_null()) {
    errno = ENOMEM;
    return nullptr;
  }
  const std::size_t usable = g_heap.mimalloc.usable_size(block.ptr<void>());
  // Anything else would be memory from outside our arenas (memory ruling 18).
  PENUMBRA_CHECK(g_heap.span.contains(block) && usable >= needed);
  if (!g_heap.arenas.take(block, usable)) {
    return_block(block.ptr<void>());
    errno = ENOMEM;
    return nullptr;
  }

  const AppAddr object = object_in(block, request.alignment);
  Facts facts;
  facts.state = State::kLive;
  facts.by = request.by;
  facts.alignment_log = static_cast<std::uint8_t>(std::countr_zero(std::max(request.alignment, kMinAlignment)));
  facts.bytes = request.bytes;
  facts.tid = current_tid();
  const std::uint64_t word = pack(facts);
  if (facts.alignment_log > 4) distance_of(object) = object - block;
  Header& header = header_of(object);
  header.stack = request.stack;
  header.check = header_check(object, word, request.stack);
  header.word.store(word, std::memory_order_release);

  fill_object(object, request);
  shadow::set_block(block, object - block, shadow::ShadowTag::kHeapLeftRedzone, request.bytes, usable,
                    shadow::ShadowTag::kHeapRightRedzone);
  return object.ptr<void>();
}

Found read_header(AppAddr object) {
  Found found;
  const Header& header = header_of(object);
  found.word = header.word.load(std::memory_order_acquire);
  if (header.check == header_check(object, found.word, header.stack)) {
    const State state = unpack(found.word).state;
    found.verdict = state == State::kLive ? FreeVerdict::kFreed : FreeVerdict::kDoubleFree;
    found.state = state == State::kLive ? BlockState::kLive : BlockState::kQuarantined;
    return found;
  }
  // Back at mimalloc, the word is a link; the record of the free tells what was here.
  const std::uint64_t recorded = free_record_of(object).word;
  if (unpack(recorded).state == State::kQuarantined && header.check == header_check(object, recorded, header.stack)) {
    found.word = recorded;
    found.verdict = FreeVerdict::kDoubleFree;
    found.state = BlockState::kFreed;
    return found;
  }
  found.verdict = FreeVerdict::kCorruptHeader;
  return found;
}

Found look_up(AppAddr object) {
  if (object_begins_at(object)) return read_header(object);
  Found found;
  if (g_heap.span.contains(object) && !g_heap.arenas.contains(object)) found.verdict = judge_large(object);
  return found;
}

ObjectInfo inspect(const void* object) {
  const Found found = look_up(AppAddr(object));
  ObjectInfo info;
  info.verdict = found.verdict;
  if (found.verdict != FreeVerdict::kFreed) return info;
  const Facts facts = unpack(found.word);
  info.by = facts.by;
  info.alignment = std::size_t{1} << facts.alignment_log;
  info.bytes = facts.bytes;
  return info;
}

std::size_t requested_bytes(const void* object) {
  const ObjectInfo info = inspect(object);
  return info.verdict == FreeVerdict::kFreed ? info.bytes : ~std::size_t{0};
}

FreeVerdict free(void* pointer, AllocatorName by, StackId stack, AllocatorName* was) {
  const AppAddr object(pointer);
  Found found = look_up(object);
  if (found.verdict != FreeVerdict::kFreed) return found.verdict;
  Header& header = header_of(object);
  const std::uint64_t claimed = (found.word & ~kStateMask) | static_cast<std::uint64_t>(State::kQuarantined);
  if (!header.word.compare_exchange_strong(found.word, claimed, std::memory_order_acq_rel)) {
    return FreeVerdict::kDoubleFree;
  }
  const Facts facts = unpack(claimed);
  if (was != nullptr) *was = facts.by;
  if (facts.is_large) {
    free_large(object, facts, claimed, stack, t_batch);
  } else {
    const ErrnoScope keep_errno;
    shadow::poison(object, round_up(facts.bytes, shadow::kGranuleSize), shadow::ShadowTag::kHeapFreed);
    free_record_of(object) = {claimed, stack, current_tid()};
    const AppAddr block = block_of(object, facts);
    g_heap.quarantine.put(t_batch, block, g_heap.mimalloc.usable_size(block.ptr<void>()));
    validate_at(2);
  }
  const bool is_mismatched = by != AllocatorName::kNone && facts.by != AllocatorName::kNone && facts.by != by;
  return is_mismatched ? FreeVerdict::kMismatched : FreeVerdict::kFreed;
}

Stats stats() {
  Stats stats{};
  stats.arenas = g_heap.arenas.count();
  stats.arena_bytes = g_heap.arenas.bytes();
  stats.taken_units = g_heap.arenas.taken_units();
  stats.quarantined_bytes = g_heap.quarantine.queued_bytes();
  stats.lost_blocks = g_heap.quarantine.lost_blocks();
  return stats;
}

void drain_quarantine() {
  const ErrnoScope keep_errno;
  g_heap.quarantine.flush(t_batch);
  g_heap.quarantine.drain();
}

void thread_exit() {
  const ErrnoScope keep_errno;
  g_heap.quarantine.close(t_batch);
}

// Order of locks: arenas before quarantine; nobody holds both but a fork.
void fork_prepare() {
  g_heap.arenas.fork_prepare();
  g_heap.quarantine.fork_prepare();
}

void fork_parent() {
  g_heap.quarantine.fork_done();
  g_heap.arenas.fork_done();
}

void fork_child() {
  fork_parent();
}

void fork_child_unprepared() {
  g_heap.arenas.reset_locks();
  g_heap.quarantine.abandon_after_fork();
}

void validate() {
  g_heap.arenas.validate();
  g_heap.quarantine.validate();
}

}  // namespace penumbra::heap
