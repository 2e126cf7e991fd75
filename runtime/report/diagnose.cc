#include "runtime/report/diagnose.h"

#include <signal.h>

#include "shadow/address_map.h"

namespace penumbra::report {
namespace {

using shadow::ShadowTag;

bool is_large_object(const Snapshot& s) {
  return (s.has_area && s.area.kind == region::AreaKind::kHeapLarge) || (s.has_block && s.block.is_large);
}

// Is the address of a thread's stack, or of its guards?
bool is_thread_stack(const Snapshot& s) {
  return s.has_area && s.area.kind == region::AreaKind::kStack && s.area.state != region::AreaState::kNever;
}

BugClass class_of_stack(const Snapshot& s, AppAddr bad) {
  if (s.area.state != region::AreaState::kLive) return BugClass::kStackUseAfterExit;
  if (bad < s.area.begin) return BugClass::kStackOverflow;
  if (bad - s.area.begin >= s.area.requested) return BugClass::kStackOutOfBounds;
  if (s.fault.kind == FaultKind::kBadAccess) return BugClass::kUseAfterScope;
  // What the program protected on its own stack.
  return is_near_stack_pointer(s, bad) ? BugClass::kStackOverflow : BugClass::kUserMemoryAccess;
}

// Region memory that malloc handed out is an object to the program: KASAN's words for large kmalloc objects. What a thread
// stands on is a stack to it.
BugClass region_class(const Snapshot& s, BugClass of_region) {
  if (is_thread_stack(s)) {
    return class_of_stack(s, s.fault.kind == FaultKind::kBadAccess ? s.fault.bad : s.fault.addr);
  }
  if (!is_large_object(s)) return of_region;
  return of_region == BugClass::kVmallocUseAfterFree ? BugClass::kUseAfterFree : BugClass::kSlabOutOfBounds;
}

BugClass class_of_area(const Snapshot& s) {
  if (!s.has_area) return region_class(s, BugClass::kVmallocOutOfBounds);
  switch (s.area.state) {
    case region::AreaState::kNever: return BugClass::kVmallocOutOfBounds;
    case region::AreaState::kFreed:
    case region::AreaState::kPurged: return region_class(s, BugClass::kVmallocUseAfterFree);
    case region::AreaState::kLive: break;
  }
  return region_class(s, s.area.in_guard ? BugClass::kVmallocGuard : BugClass::kVmallocOutOfBounds);
}

BugClass class_of_tag(const Snapshot& s, std::uint8_t value) {
  switch (static_cast<ShadowTag>(value)) {
    case ShadowTag::kRegionTail: return region_class(s, BugClass::kVmallocOutOfBounds);
    case ShadowTag::kRegionGuard: return region_class(s, BugClass::kVmallocGuard);
    case ShadowTag::kRegionFreed: return region_class(s, BugClass::kVmallocUseAfterFree);
    case ShadowTag::kStackGone: return BugClass::kStackUseAfterExit;
    case ShadowTag::kContainerOverflow: return BugClass::kContainerOverflow;
    case ShadowTag::kHeapNeverAllocated:
    case ShadowTag::kHeapLeftRedzone:
    case ShadowTag::kHeapRightRedzone:
    case ShadowTag::kLargeRedzone: return BugClass::kSlabOutOfBounds;
    case ShadowTag::kHeapFreed:
    case ShadowTag::kHeapFreedMeta: return BugClass::kSlabUseAfterFree;
    case ShadowTag::kLargeFreed: return BugClass::kUseAfterFree;
    case ShadowTag::kInternal: return BugClass::kWildMemoryAccess;
    case ShadowTag::kAllocaLeft:
    case ShadowTag::kAllocaRight: return BugClass::kAllocaOutOfBounds;
    case ShadowTag::kStackLeft:
    case ShadowTag::kStackMid:
    case ShadowTag::kStackRight:
    case ShadowTag::kStackPartial: return BugClass::kStackOutOfBounds;
    case ShadowTag::kStackAfterReturn: return BugClass::kUseAfterReturn;
    case ShadowTag::kUserPoison: return BugClass::kUseAfterPoison;
    case ShadowTag::kRegionInvalid: return s.in_span ? class_of_area(s) : BugClass::kUseAfterScope;
    case ShadowTag::kGlobalRedzone: return BugClass::kGlobalOutOfBounds;
  }
  return BugClass::kUnknownCrash;
}

BugClass class_of_wild(const Snapshot& s, AppAddr a) {
  if (!s.fault.address_known) return BugClass::kWildMemoryAccess;
  if (a.value < kPageSize) return BugClass::kNullPtrDeref;
  if (!shadow::has_shadow(a)) return BugClass::kWildMemoryAccess;
  if (s.fault.signal == SIGBUS) return BugClass::kBusError;
  if (s.fault.signal == SIGSEGV && !s.on_stack && is_near_stack_pointer(s, a)) {
    return BugClass::kStackOverflow;
  }
  return BugClass::kUserMemoryAccess;
}

BugClass class_of_access(const Snapshot& s, AppAddr bad) {
  if (bad.value < kPageSize) return BugClass::kNullPtrDeref;
  if (!shadow::has_shadow(bad)) return BugClass::kWildMemoryAccess;
  int value = s.rows.at(bad);
  if (value > 0 && value < static_cast<int>(shadow::kGranuleSize)) {
    value = s.rows.at(bad + shadow::kGranuleSize);
    // Nothing that explains the end of a partial granule: the object changed in the meantime, or what follows is
    // accessible memory of somebody else. KASAN's word for it.
    if (value >= 0 && value < static_cast<int>(shadow::kGranuleSize)) return BugClass::kOutOfBounds;
  }
  if (value == 0 && s.in_span) return class_of_area(s);  // memory that is not there (memory ruling 1)
  if (value < 0) return s.in_span ? class_of_area(s) : BugClass::kUnknownCrash;
  return class_of_tag(s, static_cast<std::uint8_t>(value));
}

Access access_of(const Snapshot& s) {
  switch (s.fault.kind) {
    case FaultKind::kDoubleFree:
    case FaultKind::kInvalidFree:
    case FaultKind::kMismatchedFree:
    case FaultKind::kSizeMismatch:
    case FaultKind::kCorruptHeader: return Access::kFree;
    case FaultKind::kWildAccess:
      if (!s.fault.address_known) return Access::kUnknown;
      break;
    case FaultKind::kBadAccess:
    case FaultKind::kWrappedAccess:
    case FaultKind::kRefcount:
    case FaultKind::kOverlap: break;
  }
  return s.fault.is_write ? Access::kWrite : Access::kRead;
}

void locate(Diagnosis& d, Place place, AppAddr begin, std::size_t bytes, bool freed) {
  d.place = place;
  d.place_begin = begin;
  d.place_bytes = bytes;
  d.place_is_freed = freed;
  if (d.guilty < begin) {
    d.side = Side::kLeft;
    d.distance = begin - d.guilty;
  } else if (d.guilty - begin < bytes) {
    d.side = Side::kInside;
    d.distance = d.guilty - begin;
  } else {
    d.side = Side::kRight;
    d.distance = d.guilty - (begin + bytes);
  }
}

}  // namespace

bool is_near_stack_pointer(const Snapshot& s, AppAddr a) {
  return s.stack_pointer != 0 && a.value - s.stack_pointer + kOverflowReach < 2 * kOverflowReach;
}

const char* class_word(BugClass bug_class) {
  switch (bug_class) {
    case BugClass::kSlabOutOfBounds: return "slab-out-of-bounds";
    case BugClass::kSlabUseAfterFree: return "slab-use-after-free";
    case BugClass::kUseAfterFree: return "use-after-free";
    case BugClass::kDoubleFree: return "double-free";
    case BugClass::kInvalidFree: return "invalid-free";
    case BugClass::kAllocDeallocMismatch: return "alloc-dealloc-mismatch";
    case BugClass::kSizeMismatch: return "new-delete-type-mismatch";
    case BugClass::kSlabCorruption: return "slab-corruption";
    case BugClass::kVmallocOutOfBounds: return "vmalloc-out-of-bounds";
    case BugClass::kVmallocUseAfterFree: return "vmalloc-use-after-free";
    case BugClass::kVmallocGuard: return "vmalloc-guard";
    case BugClass::kGlobalOutOfBounds: return "global-out-of-bounds";
    case BugClass::kStackOutOfBounds: return "stack-out-of-bounds";
    case BugClass::kAllocaOutOfBounds: return "alloca-out-of-bounds";
    case BugClass::kUseAfterScope: return "use-after-scope";
    case BugClass::kUseAfterReturn: return "use-after-return";
    case BugClass::kStackUseAfterExit: return "stack-use-after-exit";
    case BugClass::kUseAfterPoison: return "use-after-poison";
    case BugClass::kContainerOverflow: return "container-overflow";
    case BugClass::kNullPtrDeref: return "null-ptr-deref";
    case BugClass::kUserMemoryAccess: return "user-memory-access";
    case BugClass::kWildMemoryAccess: return "wild-memory-access";
    case BugClass::kOutOfBounds: return "out-of-bounds";
    case BugClass::kParamOverlap: return "memcpy-param-overlap";
    case BugClass::kRefcount: return "refcount";
    case BugClass::kStackOverflow: return "stack-overflow";
    case BugClass::kBusError: return "bus-error";
    case BugClass::kUnknownCrash: return "unknown-crash";
  }
  return "unknown-crash";
}

Diagnosis diagnose(const Snapshot& s) {
  Diagnosis d;
  d.access = access_of(s);
  d.guilty = s.fault.kind == FaultKind::kBadAccess ? s.fault.bad : s.fault.addr;
  switch (s.fault.kind) {
    case FaultKind::kBadAccess: d.bug_class = class_of_access(s, s.fault.bad); break;
    case FaultKind::kWrappedAccess: d.bug_class = BugClass::kOutOfBounds; break;
    case FaultKind::kDoubleFree: d.bug_class = BugClass::kDoubleFree; break;
    case FaultKind::kInvalidFree: d.bug_class = BugClass::kInvalidFree; break;
    case FaultKind::kMismatchedFree: d.bug_class = BugClass::kAllocDeallocMismatch; break;
    case FaultKind::kSizeMismatch: d.bug_class = BugClass::kSizeMismatch; break;
    case FaultKind::kCorruptHeader: d.bug_class = BugClass::kSlabCorruption; break;
    case FaultKind::kOverlap: d.bug_class = BugClass::kParamOverlap; break;
    case FaultKind::kRefcount: d.bug_class = BugClass::kRefcount; break;
    case FaultKind::kWildAccess:
      d.bug_class = s.in_span && s.fault.address_known ? class_of_area(s) : class_of_wild(s, s.fault.addr);
      break;
  }

  // The object beats the region that it lies in; a region that holds only heap arenas is no place of its own.
  if (s.has_block && s.block.state != heap::BlockState::kNone) {
    locate(d, Place::kObject, s.block.begin, s.block.bytes, s.block.state != heap::BlockState::kLive);
  } else if (s.has_frame) {
    locate(d, Place::kStack, s.frame.begin, 0, false);
  } else if (s.has_area && s.area.state != region::AreaState::kNever && s.area.kind != region::AreaKind::kArena) {
    locate(d, Place::kRegion, s.area.begin, s.area.requested, s.area.state != region::AreaState::kLive);
  } else if (s.has_global) {
    locate(d, Place::kGlobal, s.global.begin, s.global.bytes, false);
  }
  return d;
}

}  // namespace penumbra::report
