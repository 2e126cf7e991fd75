// What a fault is: from facts that were collected to a class word, a place and a distance.
//
// diagnose() is pure. It looks at a Snapshot and at nothing else, so tests invent addresses and map nothing. Whoever
// fills in the snapshot (snapshot.h) decides what can be known; here it is only judged, in this order: frees and
// other faults that name themselves; addresses that can hold no memory of the program; the unit map's knowledge of
// the region span; the shadow byte, as KASAN judges it (mm/kasan/report_generic.c: a partial granule speaks through
// its successor).
//
// The kernel has one word for every region error; we have three. `user-memory-access` is, as in KASAN, a fault at an
// address that a program could own; `wild-memory-access` one that no program can (non-canonical, our own shadow).
//
// zone: signal-safe
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "allocator/heap/heap.h"
#include "allocator/region/regions.h"
#include "runtime/base/fault.h"
#include "shadow/encoding.h"

namespace penumbra::report {

// The memory state that a report prints: rows of 16 granules, the guilty one in the middle (kernel: META_*).
inline constexpr std::size_t kShadowRows = 5;
inline constexpr std::size_t kGranulesPerRow = 16;
inline constexpr std::size_t kBytesPerRow = kGranulesPerRow * shadow::kGranuleSize;

// As far below the stack pointer as one function's frame may reach when it runs into the guard, and as far above
// it as a push that faulted may have left it.
inline constexpr std::uintptr_t kOverflowReach = 64u << 10;

struct ShadowRows {
  AppAddr begin;  // of the first row; a multiple of kBytesPerRow
  std::array<std::array<std::uint8_t, kGranulesPerRow>, kShadowRows> bytes{};
  std::array<bool, kShadowRows> known{};  // false where the row's addresses have no shadow

  // The shadow byte of `a`, or -1 when the rows do not hold it.
  constexpr int at(AppAddr a) const {
    if (a < begin || a - begin >= kBytesPerRow * kShadowRows) return -1;
    const std::size_t row = (a - begin) / kBytesPerRow;
    if (!known[row]) return -1;
    return bytes[row][(a - begin) % kBytesPerRow / shadow::kGranuleSize];
  }
};

// One variable of a compiled stack frame, from the compiler's description of the frame.
struct FrameObject {
  std::size_t begin = 0;  // offsets from the frame's begin
  std::size_t bytes = 0;
  std::uint32_t line = 0;  // 0 where the compiler gave none
  char name[48] = {};
};

inline constexpr std::size_t kMaxFrameObjects = 16;

struct StackFrameInfo {
  AppAddr begin;
  std::uintptr_t function = 0;        // pc of the function that owns the frame
  std::size_t objects_described = 0;  // may exceed what `objects` holds
  std::size_t object_count = 0;
  std::array<FrameObject, kMaxFrameObjects> objects{};
};

struct GlobalInfo {
  AppAddr begin;
  std::size_t bytes = 0;
  char name[128] = {};
  char file[256] = {};  // the translation unit, empty where unknown
};

struct Snapshot {
  Fault fault;
  ShadowRows rows;
  bool in_span = false;
  bool has_block = false;
  heap::BlockInfo block;
  bool has_area = false;
  region::AreaInfo area;
  bool has_frame = false;
  StackFrameInfo frame;
  bool has_global = false;
  GlobalInfo global;
  std::uintptr_t stack_pointer = 0;  // where a signal interrupted, else 0
  bool on_stack = false;             // the address lies in the writable mapping that the stack pointer points into
  int task = 0;                      // thread id
  int process = 0;
  unsigned cpu = 0;
  unsigned uid = 0;
  char task_name[16] = {};
};

enum class BugClass : std::uint8_t {
  kSlabOutOfBounds,
  kSlabUseAfterFree,
  kUseAfterFree,
  kDoubleFree,
  kInvalidFree,
  kAllocDeallocMismatch,
  kSizeMismatch,
  kSlabCorruption,
  kVmallocOutOfBounds,
  kVmallocUseAfterFree,
  kVmallocGuard,
  kGlobalOutOfBounds,
  kStackOutOfBounds,
  kAllocaOutOfBounds,
  kUseAfterScope,
  kUseAfterReturn,
  kStackUseAfterExit,
  kUseAfterPoison,
  kContainerOverflow,
  kNullPtrDeref,
  kUserMemoryAccess,
  kWildMemoryAccess,
  kOutOfBounds,
  kParamOverlap,
  kRefcount,
  kStackOverflow,
  kBusError,
  kUnknownCrash,
};
inline constexpr std::size_t kBugClasses = static_cast<std::size_t>(BugClass::kUnknownCrash) + 1;

// "slab-out-of-bounds". Letters and dashes only: that is all that parsers of kernel reports accept.
const char* class_word(BugClass bug_class);

enum class Access : std::uint8_t { kRead, kWrite, kFree, kUnknown };
enum class Place : std::uint8_t { kNone, kObject, kRegion, kGlobal, kStack };
enum class Side : std::uint8_t { kLeft, kInside, kRight };

struct Diagnosis {
  BugClass bug_class = BugClass::kUnknownCrash;
  Access access = Access::kRead;
  AppAddr guilty;  // the byte that the place, the distance and the arrow are about
  Place place = Place::kNone;
  bool place_is_freed = false;
  AppAddr place_begin;
  std::size_t place_bytes = 0;
  Side side = Side::kInside;
  std::size_t distance = 0;  // bytes left of the place, into it, or right of it
};

Diagnosis diagnose(const Snapshot& snapshot);

// Whether `a` is where a thread that runs out of its stack may be caught: within kOverflowReach of the stack pointer, which
// is known.
bool is_near_stack_pointer(const Snapshot& snapshot, AppAddr a);

}  // namespace penumbra::report
