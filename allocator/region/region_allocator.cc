#include "allocator/region/region_allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>

#include "allocator/purge/purge_inl.h"
#include "allocator/region/allocate_inl.h"
#include "allocator/region/fork_inl.h"
#include "allocator/region/free_inl.h"
#include "allocator/region/validate_inl.h"
#include "runtime/base/cgroup.h"
#include "shadow/address_map.h"

namespace penumbra::region {
namespace {

constexpr std::size_t kSmallestSpan = std::size_t{64} << 20;
// lazy_max_pages() of the kernel: this much for each power of two of CPUs (facts kasan 1.4).
constexpr std::uint64_t kThresholdStep = 32 << 20;

// Of an area around `a`, as a whole: is `a` in a guard, and what is left without the one in front.
void leave_out_guard(AreaInfo& info, AppAddr a, std::size_t guard) {
  const std::size_t at = a - info.begin;
  info.in_guard = at >= info.area_bytes || at < guard;
  info.begin = info.begin + guard;
  info.requested -= guard;
  info.area_bytes -= guard;
  info.guard_before = guard;
}

}  // namespace

Config Config::from(const Options& options) {
  Config config;
  config.span_bytes = options.span;
  config.guard = options.guard;
  config.retain = options.retain;
  config.shadow_retain = options.shadow_retain;
  config.purge_threshold = options.purge_threshold;
  config.purge_chunk = static_cast<unsigned>(std::clamp<std::int64_t>(options.purge_chunk, 0, Chunk::kMaxAreas));
  config.purge_pages = static_cast<unsigned>(std::clamp<std::int64_t>(options.purge_pages, 0, 1 << 30));
  config.worker = options.worker;
  config.flush_cost.base_ns =
      static_cast<std::uint64_t>(std::clamp<std::int64_t>(options.flush_base_us, 0, 1 << 20)) * 1000;
  config.flush_cost.per_cpu_ns =
      static_cast<std::uint64_t>(std::clamp<std::int64_t>(options.flush_per_cpu_us, 0, 1 << 20)) * 1000;
  return config;
}

template <class Shadow>
os::Result RegionAllocator<Shadow>::init(const Config& config) {
  PENUMBRA_CHECK(!is_initialized());
  const os::Result reserved = reserve_span(round_up(std::max(config.span_bytes, kZoneSize), kZoneSize));
  if (!reserved.ok()) return reserved;
  const os::Result tables = init_tables(config);
  if (!tables.ok()) {
    destroy();
    return tables;
  }
  guards_.init(config.guard, span_.begin);
  const unsigned cpus = os::possible_cpus();
  threshold_pages_ = config.purge_threshold != 0 ? config.purge_threshold
                                                 : static_cast<std::uint64_t>(std::bit_width(cpus)) * kThresholdStep;
  // What was freed and still has its memory has a limit of its own (memory ruling 13).
  const std::uint64_t limit = config.memory_limit != 0 ? config.memory_limit : os::cgroup_memory_limit();
  threshold_pages_ = std::max<std::uint64_t>(std::min(threshold_pages_, limit / 8) / kPageSize, 1);
  retain_pages_ = std::min(config.retain / kPageSize, threshold_pages_);
  shadow_keep_pages_ =
      config.shadow_retain == ~std::uint64_t{0} ? threshold_pages_ / 8 : config.shadow_retain / kPageSize;
  report_step_ = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(threshold_pages_ / 64, 1, 256));
  is_unchunked_ = config.purge_chunk == 0;
  chunk_areas_ = is_unchunked_ ? Chunk::kMaxAreas : std::min<std::uint32_t>(config.purge_chunk, Chunk::kMaxAreas);
  chunk_pages_ = is_unchunked_ || config.purge_pages == 0 ? ~0u : config.purge_pages;
  settle_areas_ = config.settle_areas == 0 ? Chunk::kMaxAreas : config.settle_areas;
  step_hook_ = config.step_hook;
  shadow::FlushCost cost = config.flush_cost;
  if (cost.cpus == 0) cost.cpus = cpus;
  tlb_.set_cost(cost);
  Node& all = global();
  PENUMBRA_CHECK(all.unused.ensure(records_, 1));
  all.free.insert(all.unused.pop(records_), 0, page_of(span_.end), all.unused);
  if (config.worker) init_worker(config);
  return os::Result(0);
}

// Zone-aligned address space wherever the kernel puts it: fixed bases broke others when randomisation grew. Under a limit on
// address space (which the paged map suggests) the program keeps a quarter as much for its stacks and mappings.
template <class Shadow>
os::Result RegionAllocator<Shadow>::reserve_span(std::size_t bytes) {
  const auto with_room = [](std::size_t span) { return span + kZoneSize + (shadow::is_paged() ? span / 4 : 0); };
  os::Result got = os::reserve(AppAddr(), with_room(bytes));
  while (!got.ok() && bytes / 2 >= kSmallestSpan) {
    bytes = round_down(bytes / 2, kZoneSize);
    got = os::reserve(AppAddr(), with_room(bytes));
  }
  if (!got.ok()) return got;
  const AppAddr begin(round_up(got.address().value, kZoneSize));
  const AppAddr end = begin + bytes;
  if (begin != got.address()) os::unmap(got.address(), begin - got.address()).ignore();
  os::unmap(end, got.address() + with_room(bytes) - end).ignore();
  span_ = {begin, end};
  return os::Result(0);
}

template <class Shadow>
os::Result RegionAllocator<Shadow>::init_tables(const Config& config) {
  const std::size_t pages = span_.bytes() >> kPageShift;
  // An area is at least two pages, and so is a hole between areas, seen over all of them.
  os::Result made = records_.init(pages + 4096);
  if (!made.ok()) return made;
  made = index_.init(pages);
  if (!made.ok()) return made;
  made = shadow_.init(span_, config.shadow, &sparse_end, this);
  if (!made.ok()) return made;
  node_count_ = config.nodes != 0 ? config.nodes : os::possible_cpus();
  node_count_ = std::clamp(node_count_, 1u, kMaxNodes);
  const std::size_t nodes_bytes = round_up((node_count_ + 1) * sizeof(Node), kPageSize);
  tables_bytes_ = nodes_bytes + round_up(sizeof(History), kPageSize);
  made = os::map_noreserve(tables_bytes_);
  if (!made.ok()) return made;
  nodes_ = made.address().ptr<Node>();
  history_ = (made.address() + nodes_bytes).ptr<History>();
  for (unsigned n = 0; n <= node_count_; ++n) {
    new (&nodes_[n]) Node;
    nodes_[n].free = FreeTree(&records_);
  }
  return made;
}

template <class Shadow>
void RegionAllocator<Shadow>::destroy() {
  worker_.destroy();
  crew_.destroy();
  if (nodes_ != nullptr) os::unmap(AppAddr(nodes_), tables_bytes_).ignore();
  shadow_.destroy();
  index_.destroy();
  records_.destroy();
  if (!span_.begin.is_null()) os::unmap(span_.begin, span_.bytes()).ignore();
  this->~RegionAllocator();
  new (this) RegionAllocator;
}

// The first byte behind `at` that a live area with unpopulated units does not make accessible.
template <class Shadow>
AppAddr RegionAllocator<Shadow>::sparse_end(const void* self, AppAddr at) {
  const auto& allocator = *static_cast<const RegionAllocator*>(self);
  const Handle h = allocator.index_.at(allocator.page_of(at));
  if (h == kNoHandle || h == AreaIndex::kGone) return at;
  const Record& r = allocator.records_[h];
  const RecordState state = r.state.load(std::memory_order_acquire);
  if (state != RecordState::kLive && state != RecordState::kResizing) return at;
  const AppRange interior = allocator.interior_of(r);
  return interior.contains(at) ? interior.end : at;
}

template <class Shadow>
bool RegionAllocator<Shadow>::describe(AppAddr a, AreaInfo& info) {
  info = {};
  if (!owns(a)) return false;
  const std::uint32_t page = page_of(a);
  const Handle h = index_.at(page);
  if (h == kNoHandle) return true;
  if (h == AreaIndex::kGone) {
    info.state = AreaState::kPurged;
    PastArea past;
    if (!history_->find(page, past)) return true;
    info.kind = past.kind;
    info.begin = address_of(past.page);
    info.requested = past.requested;
    info.area_bytes = bytes_of(past.pages);
    leave_out_guard(info, a, bytes_of(past.guard_pages));
    info.allocated = past.allocated;
    info.freed = past.freed;
    info.allocated_by = past.allocated_by;
    info.freed_by = past.freed_by;
    return true;
  }
  const Record& r = records_[h];
  const RecordState state = r.state.load(std::memory_order_acquire);
  Node& node = nodes_[std::min<unsigned>(r.node, node_count_)];
  // The lock keeps the record from changing hands; only tried, as the caller may be its holder (facts 1.6 #16).
  if (!node.lock.try_lock()) return false;
  const bool known = r.state.load(std::memory_order_acquire) == state && describe_record(r, a, info);
  node.lock.unlock();
  return known;
}

template <class Shadow>
bool RegionAllocator<Shadow>::describe_record(const Record& r, AppAddr a, AreaInfo& info) const {
  switch (r.state.load(std::memory_order_acquire)) {
    case RecordState::kLive:
    case RecordState::kResizing: info.state = AreaState::kLive; break;
    case RecordState::kFreed:
    case RecordState::kPurging: info.state = AreaState::kFreed; break;
    case RecordState::kPooled: info.state = AreaState::kPurged; break;
    default: return false;
  }
  info.kind = r.kind;
  info.begin = begin_of(r);
  info.requested = r.area.requested;
  info.area_bytes = bytes_of(r.pages);
  leave_out_guard(info, a, guard_before(r));
  info.allocated = r.area.allocated;
  info.freed = r.area.freed;
  info.allocated_by = r.area.allocated_by;
  info.freed_by = r.area.freed_by;
  // A stack that waits for its next thread belongs to nobody (note_stack_end()).
  if (r.kind == AreaKind::kStack && info.state == AreaState::kLive && info.freed_by != 0)
    info.state = AreaState::kFreed;
  return true;
}

template <class Shadow>
std::uint32_t RegionAllocator<Shadow>::keeper_of(AppAddr a) const {
  if (!is_initialized() || !owns(a)) return 0;
  const Handle h = index_.at(page_of(a));
  if (h == kNoHandle || h == AreaIndex::kGone) return 0;
  const Record& r = records_[h];
  return r.state.load(std::memory_order_acquire) == RecordState::kLive && r.kind == AreaKind::kStack ? r.next : 0;
}

template <class Shadow>
void RegionAllocator<Shadow>::set_keeper(AppAddr begin, std::uint32_t number) {
  records_[index_.at(page_of(begin))].next = number;
}

template <class Shadow>
void RegionAllocator<Shadow>::note_stack_use(AppAddr begin, StackId allocated, std::uint32_t allocated_by) {
  Record& r = records_[index_.at(page_of(begin))];
  r.area.freed_by = 0;
  r.area.freed = kNoStack;
  r.area.allocated = allocated;
  r.area.allocated_by = allocated_by;
}

template <class Shadow>
void RegionAllocator<Shadow>::note_stack_end(AppAddr begin, StackId freed, std::uint32_t freed_by) {
  Record& r = records_[index_.at(page_of(begin))];
  r.area.freed = freed;
  r.area.freed_by = freed_by;
}

// Each node's figures are read without its lock: exact when nothing runs, near enough otherwise.
template <class Shadow>
Stats RegionAllocator<Shadow>::stats() const {
  Stats s{};
  for (unsigned n = 0; n <= node_count_; ++n) {
    const Node& node = nodes_[n];
    s.live_areas += node.live_areas.value();
    s.live_bytes += node.live_bytes.value();
    s.lazy_areas += node.lazy_areas.value();
    s.lazy_bytes += node.lazy_bytes.value();
    s.retained_areas += node.retained_areas.value();
    s.retained_bytes += node.retained_pages.value() * kPageSize;
  }
  s.shadow_pages = shadow_.resident();
  s.shadow_pages_dying = shadow_.dying();
  s.shadow_pinned = shadow_.pinned();
  s.flushes = tlb_.counts().flushes;
  s.flushed_pages = tlb_.counts().pages;
  s.purge_passes = passes_.load(std::memory_order_relaxed);
  s.purge_chunks = chunks_.load(std::memory_order_relaxed);
  s.worker_chunks = worker_chunks_.load(std::memory_order_relaxed);
  s.longest_chunk_ns = longest_chunk_ns_.load(std::memory_order_relaxed);
  return s;
}

template class RegionAllocator<NoShadow>;
template class RegionAllocator<EarlyShadow>;
template class RegionAllocator<LazyShadow>;

}  // namespace penumbra::region
