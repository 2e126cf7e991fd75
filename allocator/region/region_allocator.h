// The region allocator: vmalloc for one span of address space, with a shadow policy.
//
//     span    |zone of node 0|zone of node 1|zone of node 0|   large area   |gd|      never used       |
//     zone    |area|gd|area|gd|area        |gd| free                        |
//
// An area is whole pages and a guard page behind it (gd). Areas up to 1 MiB lie in zones of the node that the
// calling thread runs on; larger ones, and arenas, come from the global node, begin and end at unit boundaries, and
// are sparse: units inside the requested bytes keep the zero page (memory ruling 4).
//
//             allocate                 free                    purge chunk
//   free tree ---------> opening/live ------> freed (lazy list) ----------+--> pool of its size --> live
//        ^                                                                |     (open, poisoned, counted)
//        +----- closed: no memory, inaccessible, no count in its units ---+
//
// On allocation: pick the range, count in its units (filled with 0xF8 by the first), open the memory, write the
// guard's and the requested bytes' shadow, publish by a release store of the state. On free: claim the area by
// compare-and-swap, poison, queue. A purge chunk: drop memory, guard, release the counts, flush the shadow of units
// that died, and only then give the range back.
//
// A1  pieces of the span are disjoint: free ranges of all nodes, and areas with their guards, tile it.
// A2  the index leads from every page of an area, and only from those, to its record.
// A3  a unit's count is the number of areas that overlap it (guards included, sparse interiors excluded), plus one
//     if it is pinned, plus those of arenas' heaps.
// A4  every byte of a live area is accessible; its tail, its guard and every byte of a freed or pooled area is not.
// A5  counters equal what a recount gives.
// A6  memory of free ranges is inaccessible, unless its units are pinned: the kernel says the same.
//
// Locks, in this order: purge mutex, then nodes by number, the global one last. None is held over a system call
// except the purge mutex. Every function may be called from any thread; free_from_signal() and describe() from
// signal handlers too.
//
// zone: nomalloc
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allocator/purge/chunk.h"
#include "allocator/purge/crew.h"
#include "allocator/purge/guards.h"
#include "allocator/purge/worker.h"
#include "allocator/region/area_index.h"
#include "allocator/region/history.h"
#include "allocator/region/node.h"
#include "allocator/region/regions.h"
#include "allocator/region/shadow_policy.h"
#include "runtime/base/locks.h"
#include "shadow/tlb.h"

namespace penumbra::region {

struct Config {
  std::size_t span_bytes = std::size_t{1} << 40;  // whole zones; halved until the kernel gives it, down to 64 MiB
  unsigned nodes = 0;                             // 0: one for each possible CPU, at most kMaxNodes
  GuardKind guard = GuardKind::kAuto;
  std::uint64_t retain = 0;                         // bytes of memory that purged areas may keep
  std::uint64_t shadow_retain = ~std::uint64_t{0};  // bytes of dying shadow; default an eighth of the threshold
  std::uint64_t purge_threshold = 0;                // freed bytes that start a purge; 0: fls(cpus) x 32 MiB
  unsigned purge_chunk = 64;       // areas of a step, half as many where they are closed; 0: a pass at once
  unsigned purge_pages = 512;      // pages of memory that end a chunk early; 0: any number
  shadow::FlushCost flush_cost{};  // added to every flush; no CPUs named: those of this machine
  std::uint64_t memory_limit = 0;  // bytes this process may use; 0: as its control groups say
  unsigned settle_areas = 0;       // areas given back in one step; 0: the whole chunk
  void (*step_hook)(std::uint64_t cpu_ns) = nullptr;  // told of each purge step, under the purge mutex
  bool worker = false;                                // a thread of ours makes the steps
  std::uint64_t worker_idle_ns = Worker::kIdleNs;     // after which it ends
  void (*before_sleep)() = nullptr;                   // for tests of the worker, see there
  ShadowAddr shadow{};  // where the span's shadow lies; null: in the process's map (tests bring memory of their own)

  static Config from(const Options& options);
};

// A bad free seen by free_from_signal(), told when the next call drains it.
struct LateFault {
  AppAddr address;
  FreeVerdict verdict;
  CodeContext context;
};

enum class ResizeVerdict : std::uint8_t { kResized, kMustMove, kDoubleFree, kInterior, kForeign };

template <class Shadow>
class RegionAllocator {
 public:
  static constexpr unsigned kMaxNodes = 64;

  constexpr RegionAllocator() = default;
  RegionAllocator(const RegionAllocator&) = delete;
  RegionAllocator& operator=(const RegionAllocator&) = delete;

  // Once, before any other call. A failed result leaves nothing mapped.
  os::Result init(const Config& config);
  // Unmaps everything. No other call may run or follow, except init().
  void destroy();
  bool is_initialized() const { return nodes_ != nullptr; }

  AppRange span() const { return span_; }
  bool owns(AppAddr a) const { return span_.contains(a); }

  // See regions.h for the contract of these.
  AppAddr allocate(const Request& request);
  FreeVerdict free(AppAddr begin, StackId stack);
  // The same for areas of one kind only; to others it is foreign.
  FreeVerdict free(AppAddr begin, StackId stack, AreaKind kind);
  std::size_t requested_bytes(AppAddr begin) const;
  bool describe(AppAddr a, AreaInfo& info);
  Stats stats() const;
  void purge_all();

  // From a signal handler: claims and queues by compare-and-swap only; all else is done by the next allocation,
  // free or purge. What it could not claim is told to the hook then, as far as there is room (lost_late_faults()).
  void free_from_signal(AppAddr begin, StackId stack, const CodeContext& context, AreaKind kind);
  using LateFaultHook = void (*)(const LateFault&);
  void set_late_fault_hook(LateFaultHook hook) { late_fault_hook_.store(hook, std::memory_order_release); }
  std::uint64_t lost_late_faults() const { return lost_late_faults_.load(std::memory_order_relaxed); }

  // Changes the size of a live area of this kind where its pages allow; its contents up to the smaller size stay.
  // `old_bytes` receives what it had, unless the verdict is bad.
  ResizeVerdict resize(AppAddr begin, std::size_t bytes, StackId stack, AreaKind kind, std::size_t& old_bytes);

  // For the keeper of stacks (stack_pool.h): the number that it gave to the live stack that covers `a` (its guards
  // included), 0 where there is none. Reads two words, so signal-safe. The stack must not be freed meanwhile.
  std::uint32_t keeper_of(AppAddr a) const;
  // By its keeper alone, of a live stack that begins exactly here: its number, and what reports say of it. `freed_by`
  // not 0: the thread that ran on it is gone.
  void set_keeper(AppAddr begin, std::uint32_t number);
  void note_stack_use(AppAddr begin, StackId allocated, std::uint32_t allocated_by);
  void note_stack_end(AppAddr begin, StackId freed, std::uint32_t freed_by);

  // Runs one chunk of a purge if one is due and nobody else purges. True if it did anything.
  bool purge_step();

  // With worker: ends it, and none begins until resume_worker(); meanwhile allocations and frees purge. For calls that
  // a process may make only with one thread, or that concern single threads. Calls may nest.
  void hold_worker();
  void resume_worker() { worker_.resume(); }
  bool is_worker_serving() const { return worker_.is_serving(); }

  void fork_prepare();
  void fork_parent();
  void fork_child();

  // A1..A6. Stops all other calls meanwhile. Cost: all areas, all units in use, /proc/self/maps.
  void validate();

  Shadow& shadow() { return shadow_; }
  const Guards& guards() const { return guards_; }
  unsigned node_count() const { return node_count_; }
  std::uint64_t purge_threshold() const { return std::uint64_t{threshold_pages_} * kPageSize; }

 private:
  friend class PurgeTestPeer;

  // Where a pass stands: for each node its pools are thinned, its freed areas purged, its free zones given back.
  enum class Phase : std::uint8_t { kDecay, kLazy, kZones };

  // Of the pass as a whole.
  struct Pass {
    bool active = false;
    bool full = false;              // this step empties pools and gives all free zones back
    std::uint64_t full_number = 0;  // of a pass that does so from its begin to its end, counted from 1
    std::uint64_t seq = 0;
  };

  // Of one lane: a node, and where in it.
  struct Cursor {
    unsigned node = 0;
    bool has_node = false;
    Phase phase = Phase::kDecay;
    std::uint32_t size = 0;   // of the pool being thinned
    std::uint32_t quota = 0;  // areas left in this phase (of this size)
    bool entered = false;     // quota is set
  };

  // What one thread works on at a time: a node of the pass, and what it has taken in hand there. A pass has one lane in
  // use, or several at once while much is waiting.
  struct Lane {
    Cursor cursor;
    Chunk chunk;
    std::uint64_t spent_ns = 0;  // in the last step, by its thread

    bool is_idle() const { return !cursor.has_node && chunk.stage == Stage::kEmpty; }
  };

  enum class Urgency : std::uint8_t { kDeferred, kShortage };

  // Of somebody who cannot go on without a purge: the full pass with whose end there is nothing more to hope for.
  struct Shortage {
    std::uint64_t until = 0;
  };

  struct LateSlot {
    std::atomic<std::uint32_t> state{0};  // 0 empty, 1 being written, 2 full
    LateFault fault{};
  };
  static constexpr std::size_t kLateSlots = 64;

  Node& global() const { return nodes_[node_count_]; }
  std::uint64_t origin() const { return span_.begin.value >> kPageShift; }
  std::uint32_t page_of(AppAddr a) const {
    return static_cast<std::uint32_t>((a.value - span_.begin.value) >> kPageShift);
  }
  AppAddr address_of(std::uint32_t page) const { return span_.begin + (std::size_t{page} << kPageShift); }
  static std::size_t bytes_of(std::uint32_t pages) { return std::size_t{pages} << kPageShift; }
  AppAddr begin_of(const Record& r) const { return address_of(r.page); }
  // What of an area has no populated units: an arena's all; of a sparse area the whole units inside the requested
  // bytes, except the first of a heap object's, where its header and redzone lie, and of a stack's, where its guard
  // lies. Empty, at the begin, for others.
  AppRange interior_of(const Record& r) const {
    const AppAddr begin = begin_of(r);
    if (r.kind == AreaKind::kArena) return {begin, begin + round_down(bytes_of(r.pages), shadow::kUnitSize)};
    if ((r.flags & Record::kSparse) == 0) return {begin, begin};
    const std::size_t lead = r.kind == AreaKind::kHeapLarge || r.kind == AreaKind::kStack ? shadow::kUnitSize : 0;
    const std::size_t end = round_down(r.area.requested, shadow::kUnitSize);
    return end <= lead ? AppRange{begin, begin} : AppRange{begin + lead, begin + end};
  }
  // Bytes at the begin of a stack that are its guard.
  static std::size_t guard_before(const Record& r) {
    return r.kind == AreaKind::kStack ? bytes_of(static_cast<std::uint32_t>(r.area.resident)) : 0;
  }
  AppAddr end_of(const Record& r) const { return begin_of(r) + bytes_of(r.area.span_pages); }

  // region_allocator.cc
  os::Result reserve_span(std::size_t bytes);
  os::Result init_tables(const Config& config);
  static AppAddr sparse_end(const void* self, AppAddr at);
  bool describe_record(const Record& r, AppAddr a, AreaInfo& info) const;

  // allocate_inl.h
  Node& lock_local_node();
  Handle allocate_small(const Request& request, std::uint32_t pages, std::uint32_t alignment);
  Handle allocate_fresh(const Request& request, std::uint32_t pages, std::uint32_t alignment);
  Handle carve_from(Node& node, unsigned number, std::uint32_t pages, std::uint32_t alignment);
  bool add_zones(unsigned number);
  bool add_zone_run(unsigned number, std::uint32_t zones);
  bool open_area(Record& r, AppAddr begin, std::uint32_t pages);
  void give_back(Record& r, Handle h);
  Handle allocate_large(const Request& request, std::uint32_t pages, std::uint32_t alignment);
  bool open_large(Record& r, const Request& request);
  bool take_edges(const Record& r);
  void release_edges(const Record& r);
  void publish(Record& r, const Request& request);
  bool make_zero(Record& r, std::size_t bytes);

  // free_inl.h
  template <class Accepts>
  FreeVerdict claim(AppAddr begin, RecordState to, Accepts accepts, Handle& claimed);
  FreeVerdict finish_free(FreeVerdict verdict, Handle h, StackId stack);
  FreeVerdict verdict_for(AppAddr begin, Handle h) const;
  void retire(Record& r, Handle h);
  void report_waiting(std::uint32_t pages);
  bool drain_signal_frees_locked(std::uint32_t most);
  void tell_late_faults();

  // ../purge/purge_inl.h
  bool is_due() const { return wanted_.load(std::memory_order_relaxed); }
  void poll_slow();
  bool is_threshold_reached() const;
  void look_again(std::uint64_t seen, bool active);
  bool step_locked(Urgency urgency);
  void begin_pass_locked(Urgency urgency);
  void advance_locked();
  Lane& lane_in_hand();
  unsigned lanes_worth() const;
  bool begin_step_locked(Urgency urgency);
  void end_step_locked(std::uint64_t spent);
  bool step_in_parallel_locked(unsigned lanes);
  void prepare_lane(Lane& lane);
  void end_pass_locked();
  bool relieve(Shortage& shortage);
  void lock_for_need();
  void ask_for_step();
  bool is_worker_behind() const;
  bool is_step_due() const;
  bool worker_step();
  void init_worker(const Config& config);

  // ../purge/collect_inl.h
  bool take_node(Cursor& cursor);
  void enter_phase_locked(Node& node, Cursor& cursor);
  bool has_room(const Chunk& chunk, std::uint32_t pages, Handle next) const;
  Handle lazy_neighbour_of(Handle h) const;
  std::uint32_t take_in_hand(Node& node, Handle h, Lane& lane, std::uint64_t& pooled);
  void collect_locked(Lane& lane);
  bool return_zone_locked(unsigned number);

  // ../purge/tear_down_inl.h
  void tear_down_locked(Chunk& chunk);
  void budget_locked(unsigned lanes);
  void clear_locked(Chunk& chunk);
  void close_locked(Record& r);
  struct Flushed {
    std::size_t ranges = 0;
    std::size_t pages = 0;
  };
  Flushed flush_shadow_locked(std::size_t keep);
  bool settle_locked(Chunk& chunk);
  bool lock_for_settling(Node& node);
  void settle_area_locked(Node& node, Handle h);
  std::uint64_t retained_pages() const;
  void count_resident_locked(const Chunk& chunk);

  // fork_inl.h
  void lock_all();
  void unlock_all();

  // validate_inl.h
  struct Piece {
    Handle area = kNoHandle;        // or
    const Node* free_in = nullptr;  // or neither: a zone run between two owners
    std::uint32_t end = 0;
  };
  Piece piece_at(std::uint32_t page) const;
  void validate_locked() const;
  void validate_area(const Record& r, Handle h) const;
  void validate_area_shadow(const Record& r) const;
  void validate_units() const;
  void validate_counters() const;
  void validate_mappings() const;
  void validate_mapping(AppRange range, bool is_accessible) const;
  bool is_unit_opening(std::uint32_t page) const;

  AppRange span_{};
  Shadow shadow_;
  Guards guards_;
  RecordTable records_;
  AreaIndex index_;
  Node* nodes_ = nullptr;  // node_count_ and the global one
  unsigned node_count_ = 0;
  std::size_t tables_bytes_ = 0;
  std::uint64_t threshold_pages_ = 0;
  std::uint64_t retain_pages_ = 0;
  std::size_t shadow_keep_pages_ = 0;
  std::uint32_t report_step_ = 0;  // freed pages that a node keeps to itself before it adds them to waiting_
  std::uint32_t chunk_areas_ = 0;
  std::uint32_t chunk_pages_ = 0;
  std::uint32_t settle_areas_ = 0;
  bool is_unchunked_ = false;
  void (*step_hook_)(std::uint64_t) = nullptr;
  History* history_ = nullptr;

  // Read on every call, written seldom.
  alignas(64) std::atomic<bool> wanted_{false};
  std::atomic<Handle> signal_frees_{kNoHandle};
  std::atomic<bool> has_late_faults_{false};

  alignas(64) std::atomic<std::uint64_t> waiting_{0};  // freed pages, as reported
  std::atomic<std::uint64_t> request_seq_{0};
  std::atomic<LateFaultHook> late_fault_hook_{nullptr};
  std::atomic<std::uint64_t> lost_late_faults_{0};
  std::atomic<std::uint32_t> zones_in_hand_{0};  // runs taken from the global node that no node has yet
  LateSlot late_[kLateSlots]{};

  // Under the purge mutex.
  alignas(64) Mutex purge_mutex_;
  std::atomic<std::uint32_t> in_need_{0};  // who waits for the mutex and must not find it taken again and again
  Pass pass_;
  std::atomic<unsigned> next_node_{0};  // the first that no lane of this pass has taken; lanes take them side by side
  Lane lanes_[Crew::kMost];
  iovec dying_shadow_[Gather::kMaxRanges]{};  // of one flush
  std::uint64_t retained_ = 0;                // pages in pools when the step began
  std::uint64_t may_retain_ = 0;              // pages that each chunk of the step may add
  Crew crew_;
  shadow::Tlb tlb_;
  // Freed in signal handlers, taken over, not yet queued. Written under the purge mutex; a worker that goes to sleep
  // looks whether there are any.
  std::atomic<Handle> drained_{kNoHandle};
  std::uint64_t full_begun_ = 0;  // full passes: the number of the last that began, and of the last that ended
  std::uint64_t full_ended_ = 0;
  // Statistics, written under the purge mutex, read by anybody.
  std::atomic<std::uint64_t> passes_{0};
  std::atomic<std::uint64_t> chunks_{0};
  std::atomic<std::uint64_t> longest_chunk_ns_{0};
  std::atomic<std::uint64_t> worker_chunks_{0};

  Worker worker_;
};

extern template class RegionAllocator<NoShadow>;
extern template class RegionAllocator<EarlyShadow>;
extern template class RegionAllocator<LazyShadow>;

}  // namespace penumbra::region
