// Which object does an address belong to, or miss by how much? Answered from the shadow outwards, without a
// lock: every block begins with two `ec` bytes before its object, and a header that proves itself.
//
// An address inside a block (redzones included) belongs to that block. Between blocks, in memory that none
// has used yet or that mimalloc keeps for itself, the nearer neighbour is named.
#include "allocator/heap/internal.h"

#include <algorithm>

namespace penumbra::heap {
namespace {

using shadow::kGranuleSize;
using shadow::ShadowTag;

// A whole block, to the left; one page, to the right and between blocks: farther off, a neighbour explains
// nothing.
constexpr std::size_t kLeftReach = kLargestBlock + kPageSize;
constexpr std::size_t kRightReach = kPageSize;

struct Candidate {
  AppAddr object;
  Found found;
  AppAddr end;  // of the block

  bool exists() const { return !object.is_null(); }
};

bool is_left_redzone(AppAddr a) {
  return has_tag(a, ShadowTag::kHeapLeftRedzone);
}

Candidate candidate_at(AppAddr object, AppAddr limit) {
  Candidate candidate;
  if (!object_begins_at(object)) return candidate;
  const Found found = read_header(object);
  if (found.state == BlockState::kNone) return candidate;
  candidate.object = object;
  candidate.found = found;
  // The right redzone runs from the object's last granule to the end of the block.
  AppAddr end = object + round_up(unpack(found.word).bytes, kGranuleSize);
  while (end < limit && has_tag(end, ShadowTag::kHeapRightRedzone)) end = end + kGranuleSize;
  candidate.end = end;
  return candidate;
}

// A freed object keeps its header until somebody writes over that; its bytes may be part of other blocks by then, up to `a`.
bool is_reused_before(const Candidate& candidate, AppAddr a) {
  if (candidate.found.state == BlockState::kLive) return false;
  const AppAddr end = std::min(a + 1, candidate.object + unpack(candidate.found.word).bytes);
  for (AppAddr g = candidate.object; g < end; g = g + kGranuleSize) {
    if (!has_tag(g, ShadowTag::kHeapFreed)) return true;
  }
  return false;
}

// The last object that begins at or before `a`.
Candidate search_left(AppAddr a, AppRange arena) {
  const AppAddr floor = a - std::min<std::size_t>(kLeftReach, a - arena.begin);
  for (AppAddr g(round_down(a.value, kGranuleSize)); g > floor; g = g - kGranuleSize) {
    if (!is_left_redzone(g - kGranuleSize)) continue;
    const Candidate candidate = candidate_at(g, arena.end);
    if (candidate.exists()) return is_reused_before(candidate, a) ? Candidate() : candidate;
  }
  return Candidate();
}

// The first object that begins after `a`.
Candidate search_right(AppAddr a, AppRange arena, std::size_t reach) {
  const AppAddr ceiling = a + std::min<std::size_t>(reach, arena.end - a);
  for (AppAddr g(round_down(a.value, kGranuleSize) + kGranuleSize); g < ceiling; g = g + kGranuleSize) {
    if (!is_left_redzone(g - kGranuleSize)) continue;
    const Candidate candidate = candidate_at(g, arena.end);
    if (candidate.exists()) return candidate;
  }
  return Candidate();
}

}  // namespace

void fill_info(AppAddr object, const Found& found, BlockInfo& info) {
  const Facts facts = unpack(found.word);
  info.state = found.state;
  info.begin = object;
  info.bytes = facts.bytes;
  info.by = facts.by;
  info.allocated = header_of(object).stack;
  info.allocated_by = facts.tid;
  if (found.state != BlockState::kLive) {
    info.freed = free_record_of(object).stack;
    info.freed_by = free_record_of(object).tid;
  }
}

bool owns(AppAddr a) {
  if (!g_heap.span.contains(a)) return false;
  BlockInfo info;
  return g_heap.arenas.contains(a) || describe_large(a, info);
}

bool describe(AppAddr a, BlockInfo& info) {
  if (!g_heap.span.contains(a)) return false;
  const AppRange arena = g_heap.arenas.range_of(a);
  if (arena.bytes() == 0) return describe_large(a, info);
  const Candidate left = search_left(a, arena);
  Candidate nearest = left;
  if (!left.exists() || a >= left.end) {
    // In the left redzone of an aligned object the object may be far; else only a near one matters.
    const Candidate right = search_right(a, arena, is_left_redzone(a) ? kLeftReach : kRightReach);
    const bool left_is_near = left.exists() && a - left.end < kRightReach;
    if (right.exists() && (is_left_redzone(a) || !left_is_near || right.object - a < a - left.end)) nearest = right;
    if (nearest.object == left.object && !left_is_near) return false;
  }
  if (!nearest.exists()) return false;
  info = BlockInfo();
  fill_info(nearest.object, nearest.found, info);
  const AppAddr block = block_of(nearest.object, unpack(nearest.found.word));
  info.block_bytes = nearest.end - block;
  return true;
}

}  // namespace penumbra::heap
