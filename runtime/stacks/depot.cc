#include "runtime/stacks/depot.h"

#include <sys/mman.h>

#include <atomic>

#include "runtime/base/check.h"
#include "runtime/base/config.h"
#include "runtime/base/options.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"
#include "runtime/stacks/stacks.h"

namespace penumbra::stacks {
namespace {

// Handles count 8-byte words from the start of the arena, so 32 bits reach further than any budget allowed here.
constexpr std::uint64_t kWordBytes = 8;
constexpr std::uint64_t kMinBudget = std::uint64_t{1} << 20;
constexpr std::uint64_t kMaxBudget = std::uint64_t{16} << 30;
// Memory is opened in steps, so that an unused budget counts against no commit limit.
constexpr std::uint64_t kOpenStep = std::uint64_t{1} << 20;
// Budget bytes per bucket: a record of some 20 frames takes about 180, so chains are three long when all is full. Buckets
// are met in random order, and a process that stores few stacks pays two page faults for every page of them.
constexpr std::uint64_t kBytesPerBucket = 512;

// Never the upper half of a frame's address, which user space ends below 2^47.
constexpr std::uint64_t kMagic = 0x9e37;

//   head:  magic:16 | frames:8 | zero:8 | hash:32
//   next:  handle of the next record in the bucket, 0 for none
//   then the frames
struct Record {
  std::uint64_t head;
  std::uint64_t next;

  std::uintptr_t* frames() { return reinterpret_cast<std::uintptr_t*>(this + 1); }
  const std::uintptr_t* frames() const { return reinterpret_cast<const std::uintptr_t*>(this + 1); }
};

constexpr std::uint64_t kHeadWords = sizeof(Record) / kWordBytes;

std::uint64_t head_of(std::uint32_t hash, std::size_t count) {
  return kMagic << 48 | std::uint64_t{count} << 40 | hash;
}

std::size_t count_of(std::uint64_t head) {
  return head >> 40 & 0xff;
}

// What there is once the memory was had; written before `ready` is.
struct Depot {
  std::uint8_t* arena = nullptr;
  std::uint64_t arena_words = 0;
  std::atomic<std::uint32_t>* buckets = nullptr;
  std::uint32_t bucket_mask = 0;
};

enum class Setup : std::uint32_t { kNotYet, kRunning, kReady, kNone };

constinit Depot g_depot;
constinit std::atomic<Setup> g_setup{Setup::kNotYet};
constinit std::atomic<std::uint64_t> g_top{1};         // words handed out; word 0 stays unused, so no handle is 0
constinit std::atomic<std::uint64_t> g_open_words{0};  // words that are readable and writable
constinit std::atomic<std::uint64_t> g_stacks{0};
constinit std::atomic<std::uint64_t> g_lost{0};
constinit std::atomic<std::uint64_t> g_wasted_words{0};

Record* record_at(std::uint64_t handle) {
  return reinterpret_cast<Record*>(g_depot.arena + handle * kWordBytes);
}

bool same_frames(const Record* record, std::uint64_t head, const std::uintptr_t* frames, std::size_t count) {
  if (record->head != head) return false;
  std::uintptr_t difference = 0;
  for (std::size_t i = 0; i < count; ++i) difference |= record->frames()[i] ^ frames[i];
  return difference == 0;
}

// Looks along one chain, up to but not including `end`.
std::uint32_t find_in_chain(std::uint32_t handle, std::uint32_t end, std::uint64_t head, const std::uintptr_t* frames,
                            std::size_t count) {
  while (handle != end && handle != 0) {
    const Record* record = record_at(handle);
    if (same_frames(record, head, frames, count)) return handle;
    handle = static_cast<std::uint32_t>(record->next);
  }
  return 0;
}

// Opening the same step twice does no harm, so racing threads need not agree on who does it.
bool open_up_to(std::uint64_t words) {
  std::uint64_t open = g_open_words.load(std::memory_order_acquire);
  while (open < words) {
    const std::uint64_t from = open * kWordBytes;
    const std::uint64_t to = round_up(words * kWordBytes, kOpenStep);
    if (!os::protect(AppAddr(g_depot.arena + from), to - from, PROT_READ | PROT_WRITE).ok()) return false;
    g_open_words.compare_exchange_strong(open, to / kWordBytes, std::memory_order_acq_rel);
    open = g_open_words.load(std::memory_order_acquire);
  }
  return true;
}

// The first of `words` words, or 0 when the budget is used up.
std::uint64_t take_words(std::uint64_t words) {
  std::uint64_t top = g_top.load(std::memory_order_relaxed);
  do {
    if (top + words > g_depot.arena_words || !open_up_to(top + words)) return 0;
  } while (!g_top.compare_exchange_weak(top, top + words, std::memory_order_acquire, std::memory_order_relaxed));
  return top;
}

// A record that lost the race to be linked: given back if nobody took words since, else left unused. Released, and
// acquired by take_words(): our last writes to it come before those of whoever gets the words next.
void give_back(std::uint64_t at, std::uint64_t words) {
  std::uint64_t top = at + words;
  if (!g_top.compare_exchange_strong(top, at, std::memory_order_release, std::memory_order_relaxed)) {
    g_wasted_words.fetch_add(words, std::memory_order_relaxed);
  }
}

void validate_bucket(std::uint32_t b) {
  std::uint32_t handle = g_depot.buckets[b].load(std::memory_order_acquire);
  for (std::uint64_t steps = 0; handle != 0; ++steps) {
    PENUMBRA_CHECK_OP(steps, <, g_depot.arena_words);  // I3
    const Record* record = record_at(handle);
    const std::size_t count = count_of(record->head);
    PENUMBRA_CHECK_OP(record->head, ==, head_of(depot_hash(record->frames(), count), count));  // I1
    PENUMBRA_CHECK_OP(static_cast<std::uint32_t>(record->head) & g_depot.bucket_mask, ==, b);  // I2
    const auto next = static_cast<std::uint32_t>(record->next);
    PENUMBRA_CHECK(find_in_chain(next, 0, record->head, record->frames(), count) == 0);  // I4
    handle = next;
  }
}

bool set_up(Depot& depot) {
  std::uint64_t budget = process_options().depot;
  if (budget == 0) return false;
  budget = round_up(budget < kMinBudget ? kMinBudget : budget > kMaxBudget ? kMaxBudget : budget, kOpenStep);
  std::uint64_t buckets = 1024;
  while (buckets * kBytesPerBucket < budget && buckets < (std::uint64_t{1} << 20)) buckets *= 2;
  const std::uint64_t table_bytes = buckets * sizeof(std::uint32_t);
  const os::Result table = os::map_anonymous(table_bytes);
  if (!table.ok()) return false;
  const os::Result arena = os::reserve(AppAddr(), budget - table_bytes);
  if (!arena.ok()) {
    os::unmap(table.address(), table_bytes).ignore();
    return false;
  }
  depot.buckets = table.address().ptr<std::atomic<std::uint32_t>>();
  depot.bucket_mask = static_cast<std::uint32_t>(buckets - 1);
  depot.arena = arena.address().ptr();
  depot.arena_words = (budget - table_bytes) / kWordBytes;
  return true;
}

// The first caller sets up. Whoever comes meanwhile (another thread, or a signal handler that interrupted the first)
// stores nothing: waiting could be for ever.
bool set_up_once() {
  Setup setup = Setup::kNotYet;
  if (g_setup.compare_exchange_strong(setup, Setup::kRunning)) {
    setup = set_up(g_depot) ? Setup::kReady : Setup::kNone;
    g_setup.store(setup, std::memory_order_release);
  }
  return setup == Setup::kReady;
}

bool is_ready() {
  return g_setup.load(std::memory_order_acquire) == Setup::kReady || set_up_once();
}

}  // namespace

StackId depot_put_hashed(const std::uintptr_t* frames, std::size_t count, std::uint32_t hash) {
  if (count == 0) return kNoStack;
  if (count > kMaxStackFrames) count = kMaxStackFrames;
  if (!is_ready()) [[unlikely]] {
    g_lost.fetch_add(1, std::memory_order_relaxed);
    return kNoStack;
  }
  const std::uint64_t head = head_of(hash, count);
  std::atomic<std::uint32_t>& bucket = g_depot.buckets[hash & g_depot.bucket_mask];
  std::uint32_t first = bucket.load(std::memory_order_acquire);
  if (const std::uint32_t found = find_in_chain(first, 0, head, frames, count)) return found;

  const std::uint64_t words = kHeadWords + count;
  const std::uint64_t at = take_words(words);
  if (at == 0) {
    g_lost.fetch_add(1, std::memory_order_relaxed);
    return kNoStack;
  }
  Record* record = record_at(at);
  record->head = head;
  for (std::size_t i = 0; i < count; ++i) record->frames()[i] = frames[i];
  while (true) {
    record->next = first;
    const std::uint32_t looked_from = first;
    if (bucket.compare_exchange_strong(first, static_cast<std::uint32_t>(at), std::memory_order_release,
                                       std::memory_order_acquire)) {
      g_stacks.fetch_add(1, std::memory_order_relaxed);
#if PENUMBRA_VALIDATE > 1
      validate_bucket(hash & g_depot.bucket_mask);
#endif
      return static_cast<std::uint32_t>(at);
    }
    // Somebody linked something first: perhaps the same stack.
    if (const std::uint32_t found = find_in_chain(first, looked_from, head, frames, count)) {
      record->head = 0;
      give_back(at, words);
      return found;
    }
  }
}

std::uint64_t depot_power(std::size_t frames) {
  struct Powers {
    std::uint64_t of[kMaxStackFrames + 1];
  };
  static constexpr Powers kPowers = [] {
    Powers powers{};
    std::uint64_t power = 1;
    for (std::uint64_t& slot : powers.of) {
      slot = power;
      power *= kDepotMultiplier;
    }
    return powers;
  }();
  return kPowers.of[frames];
}

std::uint32_t depot_hash(const std::uintptr_t* frames, std::size_t count) {
  std::uint64_t polynomial = 0;
  for (std::size_t i = count; i-- > 0;) polynomial = polynomial * kDepotMultiplier + frames[i];
  return depot_hash_finish(polynomial);
}

StackId depot_put(const std::uintptr_t* frames, std::size_t count) {
  if (count > kMaxStackFrames) count = kMaxStackFrames;
  return depot_put_hashed(frames, count, depot_hash(frames, count));
}

std::size_t depot_get(StackId id, std::uintptr_t* frames, std::size_t max) {
  if (g_setup.load(std::memory_order_acquire) != Setup::kReady) return 0;
  const std::uint64_t top = g_top.load(std::memory_order_acquire);
  if (id == kNoStack || id + kHeadWords > top) return 0;
  const Record* record = record_at(id);
  const std::size_t count = count_of(record->head);
  if (record->head >> 48 != kMagic || count == 0 || count > kMaxStackFrames || id + kHeadWords + count > top)
    return 0;
  if (record->head != head_of(depot_hash(record->frames(), count), count)) return 0;
  const std::size_t copied = count < max ? count : max;
  for (std::size_t i = 0; i < copied; ++i) frames[i] = record->frames()[i];
  return copied;
}

DepotStats depot_stats() {
  DepotStats stats;
  stats.stacks = g_stacks.load(std::memory_order_relaxed);
  stats.lost = g_lost.load(std::memory_order_relaxed);
  stats.wasted_bytes = g_wasted_words.load(std::memory_order_relaxed) * kWordBytes;
  if (g_setup.load(std::memory_order_acquire) == Setup::kReady) {
    stats.used_bytes = g_top.load(std::memory_order_relaxed) * kWordBytes;
    stats.budget_bytes = g_depot.arena_words * kWordBytes;
  }
  return stats;
}

void append_depot_stats(TextBuffer& out) {
  const DepotStats stats = depot_stats();
  out.append("stack depot: ").dec(stats.stacks).append(" stacks in ").dec(stats.used_bytes).append(" of ");
  out.dec(stats.budget_bytes).append(" bytes, ").dec(stats.wasted_bytes).append(" wasted, ");
  out.dec(stats.lost).append(" stacks lost\n");
}

void validate_depot() {
  if (g_setup.load(std::memory_order_acquire) != Setup::kReady) return;
  for (std::uint32_t b = 0; b <= g_depot.bucket_mask; ++b) validate_bucket(b);
}

}  // namespace penumbra::stacks
