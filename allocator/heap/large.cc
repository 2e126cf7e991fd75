// Objects too large for an arena: a region each, with the same header in front.
//
//     region begin      object - 16     object                              region tail, guard
//     | gap, if aligned | header        | the program's bytes ......        |
//
// The object lies a fixed distance behind the region's begin: 16 bytes, or the alignment where that is larger, so
// that a pointer leads back to its region without a search. Up to half a unit the whole gap is tagged as left redzone;
// of a larger one only the last 16 bytes are: inner units of large regions are not populated (memory ruling 4), and
// the region allocator drops their shadow when it takes the region back.
//
// Freed objects of up to 1 MiB, whose shadow is all there, are poisoned and wait in the heap's quarantine; then, as
// larger ones at once, they go to the region allocator's lazy lists. It makes the larger ones inaccessible as it takes
// them (memory ruling 4): they keep no memory that a quarantine could count. Their regions are mappings of their own, so
// realloc moves the pages of one to the other and copies only the first, which holds the header.
#include "allocator/heap/internal.h"
#include "allocator/region/area_index.h"
#include "allocator/region/node.h"
#include "allocator/region/regions.h"
#include "runtime/base/check.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"
#include "runtime/base/thread_id.h"
#include "shadow/poison.h"

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>

namespace penumbra::heap {
namespace {

std::size_t gap_bytes(std::size_t alignment) {
  return std::max(alignment, kHeaderBytes);
}

std::size_t tagged_gap_bytes(std::size_t gap) {
  return gap <= shadow::kUnitSize / 2 ? gap : kHeaderBytes;
}

// Does the region allocator populate all units of such an area? Others have an interior without shadow.
bool has_whole_shadow(std::size_t gap, std::size_t bytes) {
  return round_up(gap + bytes, kPageSize) / kPageSize <= region::kMaxPooledPages &&
         gap <= region::kZonePages * kPageSize;
}

void free_region(AppAddr object, std::size_t gap, StackId stack) {
  PENUMBRA_CHECK(region::free(object - gap, stack) == region::FreeVerdict::kFreed);
}

}  // namespace

void* allocate_large(const Request& request) {
  const std::size_t gap = gap_bytes(request.alignment);
  region::Request area;
  if (__builtin_add_overflow(gap, request.bytes, &area.bytes) || area.bytes > kUserAddressEnd) {
    errno = ENOMEM;
    return nullptr;
  }
  area.alignment = std::max(request.alignment, kPageSize);
  area.zero = request.zero;
  area.kind = region::AreaKind::kHeapLarge;
  area.stack = request.stack;
  const int saved = errno;
  const AppAddr begin = region::allocate(area);
  if (begin.is_null()) {
    errno = ENOMEM;
    return nullptr;
  }
  errno = saved;
  const AppAddr object = begin + gap;
  Facts facts;
  facts.state = State::kLive;
  facts.is_large = true;
  facts.by = request.by;
  facts.alignment_log = static_cast<std::uint8_t>(std::countr_zero(gap));
  facts.bytes = request.bytes;
  const std::uint64_t word = pack(facts);
  Header& header = header_of(object);
  header.stack = request.stack;
  header.check = header_check(object, word, request.stack);
  header.word.store(word, std::memory_order_release);
  const std::size_t tagged = tagged_gap_bytes(gap);
  shadow::poison(object - tagged, tagged, shadow::ShadowTag::kHeapLeftRedzone);
  if (!request.zero && g_heap.junk_bytes != 0) {
    raw_set(object.ptr<void>(), kJunk, std::min(request.bytes, g_heap.junk_bytes));
  }
  return object.ptr<void>();
}

void move_contents(void* to_object, void* from_object, std::size_t bytes) {
  const AppAddr to(to_object);
  const AppAddr from(from_object);
  const auto is_mapping = [](const Facts& facts) {
    return facts.is_large && facts.alignment_log == 4 && !has_whole_shadow(kHeaderBytes, facts.bytes);
  };
  constexpr std::size_t kFirst = kPageSize - kHeaderBytes;  // bytes in the page of the header
  if (bytes > kFirst && is_mapping(unpack(header_of(to).word.load(std::memory_order_relaxed))) &&
      is_mapping(unpack(header_of(from).word.load(std::memory_order_relaxed))) &&
      os::move_pages(from + kFirst, to + kFirst, round_up(bytes - kFirst, kPageSize)).ok()) {
    bytes = kFirst;
  }
  // One call instead of a fault for each page. A hint: where it fails, pages come as they are written.
  constexpr std::size_t kWorthACall = 16 * kPageSize;
  if (bytes >= kWorthACall) {
    const AppAddr first(round_up(to.value, kPageSize));
    os::advise(first, round_down((to + bytes).value, kPageSize) - first.value, MADV_POPULATE_WRITE).ignore();
  }
  raw_copy(to_object, from_object, bytes);
}

void free_large(AppAddr object, const Facts& facts, std::uint64_t claimed_word, StackId stack,
                const QuarantineBatch& batch) {
  const std::size_t gap = std::size_t{1} << facts.alignment_log;
  if (!has_whole_shadow(gap, facts.bytes) || facts.bytes < sizeof(FreeRecord)) {
    free_region(object, gap, stack);
    return;
  }
  shadow::poison(object, round_up(facts.bytes, shadow::kGranuleSize), shadow::ShadowTag::kLargeFreed);
  free_record_of(object) = {claimed_word, stack, current_tid()};
  g_heap.quarantine.put_large(batch, object, round_up(gap + facts.bytes, kPageSize));
}

void return_large(void* freed) {
  const AppAddr object(freed);
  // A stale pointer may have written over the record, which then names another stack or none; the header says where
  // the region begins. Where that is overwritten, the region is given up.
  const Found found = read_header(object);
  if (found.state != BlockState::kQuarantined) return;
  free_region(object, std::size_t{1} << unpack(found.word).alignment_log, free_record_of(object).stack);
}

FreeVerdict judge_large(AppAddr object) {
  region::AreaInfo area;
  if (!region::describe(object, area) || area.kind != region::AreaKind::kHeapLarge ||
      (area.state != region::AreaState::kFreed && area.state != region::AreaState::kPurged)) {
    return FreeVerdict::kInvalid;
  }
  // The header is poison or gone. An object begins 16 bytes, or its alignment, behind the region's begin.
  const std::size_t gap = object - area.begin;
  return is_power_of_two(gap) && gap >= kHeaderBytes ? FreeVerdict::kDoubleFree : FreeVerdict::kInvalid;
}

bool describe_large(AppAddr a, BlockInfo& info) {
  region::AreaInfo area;
  if (!region::describe(a, area) || area.kind != region::AreaKind::kHeapLarge) return false;
  if (area.state == region::AreaState::kNever) return false;
  info = BlockInfo();
  info.is_large = true;
  info.block_bytes = area.area_bytes;
  info.allocated = area.allocated;
  info.freed = area.freed;
  info.allocated_by = area.allocated_by;
  info.freed_by = area.freed_by;
  info.state = area.state == region::AreaState::kLive ? BlockState::kLive : BlockState::kFreed;
  // Where the object begins is in a live region's shadow; a freed one has the usual 16 bytes, unless its
  // alignment was larger, which nobody knows any more.
  std::size_t gap = kHeaderBytes;
  if (info.state == BlockState::kLive) {
    for (std::size_t candidate = gap; candidate < area.requested; candidate *= 2) {
      if (!object_begins_at(area.begin + candidate)) continue;
      const Found found = read_header(area.begin + candidate);
      if (found.state == BlockState::kNone) continue;
      gap = candidate;
      info.by = unpack(found.word).by;
      if (found.state == BlockState::kLive) break;
      info.state = found.state;
      info.freed = free_record_of(area.begin + gap).stack;
      info.freed_by = free_record_of(area.begin + gap).tid;
      break;
    }
  }
  info.begin = area.begin + gap;
  info.bytes = area.requested - std::min(gap, area.requested);
  return true;
}

}  // namespace penumbra::heap
