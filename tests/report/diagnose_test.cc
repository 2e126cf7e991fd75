// diagnose() without memory: every snapshot here is invented. The heap lies at 0x2000'0000, the region span at
// 0x5000'0000'0000; nothing is mapped at either.
#include "runtime/report/diagnose.h"

#include <gtest/gtest.h>

#include <signal.h>

#include <string>

namespace penumbra::report {
namespace {

using shadow::ShadowTag;

constexpr AppAddr kHeap{0x20000000};
constexpr AppAddr kSpan{0x500000000000};

// A snapshot whose shadow rows lie around `bad`, all of them reading `fill`.
Snapshot bad_access(AppAddr bad, std::uint8_t fill) {
  Snapshot s;
  s.fault.kind = FaultKind::kBadAccess;
  s.fault.addr = s.fault.bad = bad;
  s.fault.size = 1;
  s.rows.begin = AppAddr(round_down(bad.value, kBytesPerRow) - 2 * kBytesPerRow);
  s.rows.known.fill(true);
  for (auto& row : s.rows.bytes) row.fill(fill);
  return s;
}

Snapshot bad_access(AppAddr bad, ShadowTag tag) {
  return bad_access(bad, static_cast<std::uint8_t>(tag));
}

Snapshot in_area(Snapshot s, region::AreaState state) {
  s.in_span = s.has_area = true;
  s.area.state = state;
  s.area.begin = kSpan;
  s.area.requested = 5000;
  s.area.area_bytes = 8192;
  return s;
}

Snapshot with_block(Snapshot s, heap::BlockState state) {
  s.has_block = true;
  s.block.state = state;
  s.block.begin = kHeap;
  s.block.bytes = 40;
  s.block.block_bytes = 80;
  return s;
}

void set_shadow(Snapshot& s, AppAddr a, std::uint8_t value) {
  s.rows.bytes[(a - s.rows.begin) / kBytesPerRow][(a - s.rows.begin) % kBytesPerRow / shadow::kGranuleSize] = value;
}

std::string word(const Snapshot& s) {
  return class_word(diagnose(s).bug_class);
}

Snapshot signal_fault(AppAddr at) {
  Snapshot s;
  s.fault.kind = FaultKind::kWildAccess;
  s.fault.addr = at;
  s.fault.signal = SIGSEGV;
  return s;
}

TEST(Diagnose, TagsOutsideTheSpanHaveTheWordsOfKasan) {
  const struct {
    ShadowTag tag;
    const char* word;
  } expected[] = {
      {ShadowTag::kHeapRightRedzone, "slab-out-of-bounds"},
      {ShadowTag::kHeapLeftRedzone, "slab-out-of-bounds"},
      {ShadowTag::kHeapNeverAllocated, "slab-out-of-bounds"},
      {ShadowTag::kLargeRedzone, "slab-out-of-bounds"},
      {ShadowTag::kHeapFreed, "slab-use-after-free"},
      {ShadowTag::kHeapFreedMeta, "slab-use-after-free"},
      {ShadowTag::kLargeFreed, "use-after-free"},
      {ShadowTag::kGlobalRedzone, "global-out-of-bounds"},
      {ShadowTag::kStackLeft, "stack-out-of-bounds"},
      {ShadowTag::kStackMid, "stack-out-of-bounds"},
      {ShadowTag::kStackRight, "stack-out-of-bounds"},
      {ShadowTag::kStackPartial, "stack-out-of-bounds"},
      {ShadowTag::kAllocaLeft, "alloca-out-of-bounds"},
      {ShadowTag::kAllocaRight, "alloca-out-of-bounds"},
      {ShadowTag::kStackAfterReturn, "use-after-return"},
      {ShadowTag::kRegionInvalid, "use-after-scope"},
      {ShadowTag::kStackGone, "stack-use-after-exit"},
      {ShadowTag::kUserPoison, "use-after-poison"},
      {ShadowTag::kContainerOverflow, "container-overflow"},
      {ShadowTag::kInternal, "wild-memory-access"},
  };
  for (const auto& [tag, expected_word] : expected) {
    EXPECT_EQ(word(bad_access(kHeap, tag)), expected_word) << shadow::tag_meaning(static_cast<std::uint8_t>(tag));
  }
}

TEST(Diagnose, EveryTagIsJudged) {
  for (const shadow::TagInfo& info : shadow::kTags) {
    EXPECT_NE(word(bad_access(kHeap, info.tag)), "unknown-crash") << info.meaning;
  }
  EXPECT_EQ(word(bad_access(kHeap, std::uint8_t{0x90})), "unknown-crash");
}

TEST(Diagnose, APartialGranuleSpeaksThroughItsSuccessor) {
  Snapshot s = bad_access(kHeap + 45, ShadowTag::kHeapRightRedzone);
  set_shadow(s, kHeap + 40, 5);
  EXPECT_EQ(word(s), "slab-out-of-bounds");
  set_shadow(s, kHeap + 48, 0);
  EXPECT_EQ(word(s), "out-of-bounds") << "nothing explains the partial granule any more";
}

TEST(Diagnose, RegionErrorsHaveThreeWordsWhereTheKernelHasOne) {
  using region::AreaState;
  EXPECT_EQ(word(in_area(bad_access(kSpan + 5000, ShadowTag::kRegionTail), AreaState::kLive)),
            "vmalloc-out-of-bounds");
  EXPECT_EQ(word(in_area(bad_access(kSpan + 8192, ShadowTag::kRegionGuard), AreaState::kLive)), "vmalloc-guard");
  EXPECT_EQ(word(in_area(bad_access(kSpan + 10, ShadowTag::kRegionFreed), AreaState::kFreed)),
            "vmalloc-use-after-free");
}

TEST(Diagnose, InsideTheSpanUntouchedShadowIsJudgedByTheArea) {
  Snapshot s = in_area(bad_access(kSpan + 100, std::uint8_t{0}), region::AreaState::kPurged);
  EXPECT_EQ(word(s), "vmalloc-use-after-free");
  s.area.state = region::AreaState::kNever;
  EXPECT_EQ(word(s), "vmalloc-out-of-bounds");
  s.has_area = false;
  EXPECT_EQ(word(s), "vmalloc-out-of-bounds") << "no area known there";
}

TEST(Diagnose, OneShadowByteMeansNotAllocatedInsideTheSpanAndScopeOutside) {
  Snapshot s = bad_access(kSpan + 100, ShadowTag::kRegionInvalid);
  EXPECT_EQ(word(s), "use-after-scope");
  s.in_span = true;
  EXPECT_EQ(word(s), "vmalloc-out-of-bounds");
}

TEST(Diagnose, ARegionThatMallocHandedOutIsAnObjectToTheProgram) {
  Snapshot s = in_area(bad_access(kSpan + 5000, ShadowTag::kRegionTail), region::AreaState::kLive);
  s.area.kind = region::AreaKind::kHeapLarge;
  EXPECT_EQ(word(s), "slab-out-of-bounds");
  s = in_area(bad_access(kSpan + 50, ShadowTag::kRegionFreed), region::AreaState::kFreed);
  s.area.kind = region::AreaKind::kHeapLarge;
  EXPECT_EQ(word(s), "use-after-free");
}

TEST(Diagnose, TheDistanceIsThatOfTheFirstBadByte) {
  Snapshot s = with_block(bad_access(kHeap + 43, ShadowTag::kHeapRightRedzone), heap::BlockState::kLive);
  s.fault.addr = kHeap;
  s.fault.size = 44;
  Diagnosis d = diagnose(s);
  EXPECT_EQ(d.place, Place::kObject);
  EXPECT_EQ(d.side, Side::kRight);
  EXPECT_EQ(d.distance, 3u);
  EXPECT_EQ(d.place_bytes, 40u);
  EXPECT_FALSE(d.place_is_freed);

  s.fault.bad = kHeap - 3;
  d = diagnose(s);
  EXPECT_EQ(d.side, Side::kLeft);
  EXPECT_EQ(d.distance, 3u);

  s.fault.bad = kHeap + 39;
  d = diagnose(s);
  EXPECT_EQ(d.side, Side::kInside);
  EXPECT_EQ(d.distance, 39u);
}

TEST(Diagnose, AQuarantinedObjectIsFreed) {
  EXPECT_TRUE(diagnose(with_block(bad_access(kHeap + 8, ShadowTag::kHeapFreed), heap::BlockState::kQuarantined))
                  .place_is_freed);
}

TEST(Diagnose, TheObjectBeatsTheRegionItLiesInAndArenasAreNoPlace) {
  Snapshot s = in_area(bad_access(kSpan + 8, ShadowTag::kHeapNeverAllocated), region::AreaState::kLive);
  s.area.kind = region::AreaKind::kArena;
  EXPECT_EQ(diagnose(s).place, Place::kNone);
  EXPECT_EQ(diagnose(with_block(s, heap::BlockState::kLive)).place, Place::kObject);
}

TEST(Diagnose, FreesNameThemselves) {
  const struct {
    FaultKind kind;
    const char* word;
  } expected[] = {
      {FaultKind::kDoubleFree, "double-free"},
      {FaultKind::kInvalidFree, "invalid-free"},
      {FaultKind::kMismatchedFree, "alloc-dealloc-mismatch"},
      {FaultKind::kSizeMismatch, "new-delete-type-mismatch"},
      {FaultKind::kCorruptHeader, "slab-corruption"},
  };
  for (const auto& [kind, expected_word] : expected) {
    Snapshot s = bad_access(kHeap, std::uint8_t{0});
    s.fault.kind = kind;
    EXPECT_EQ(word(s), expected_word);
    EXPECT_EQ(diagnose(s).access, Access::kFree);
  }
}

TEST(Diagnose, AWrappedSizeIsOutOfBoundsWhateverTheShadowSays) {
  Snapshot s = bad_access(kHeap, ShadowTag::kHeapFreed);
  s.fault.kind = FaultKind::kWrappedAccess;
  s.fault.size = ~std::size_t{0};
  EXPECT_EQ(word(s), "out-of-bounds");
}

TEST(Diagnose, AddressesThatCanHoldNothingAreJudgedAsKasanDoes) {
  EXPECT_EQ(word(bad_access(AppAddr(std::uintptr_t{0x410}), std::uint8_t{0})), "null-ptr-deref");
  EXPECT_EQ(word(bad_access(AppAddr(std::uintptr_t{0xfff}), std::uint8_t{0})), "null-ptr-deref");
  EXPECT_EQ(word(bad_access(shadow::kLowMemoryEnd, std::uint8_t{0})), "wild-memory-access") << "our own shadow";
  EXPECT_EQ(word(bad_access(AppAddr(std::uintptr_t{0xffff888000000000}), std::uint8_t{0})), "wild-memory-access");
}

TEST(Diagnose, ASignalIsClassifiedAsTheNonCanonicalHookDoes) {
  EXPECT_EQ(word(signal_fault(AppAddr(std::uintptr_t{0x18}))), "null-ptr-deref");
  EXPECT_EQ(word(signal_fault(AppAddr(std::uintptr_t{0x10000000000}))), "wild-memory-access") << "our own shadow";
  EXPECT_EQ(word(signal_fault(AppAddr(std::uintptr_t{0x700000000000}))), "user-memory-access");
  Snapshot s = signal_fault(AppAddr());
  s.fault.address_known = false;
  EXPECT_EQ(word(s), "wild-memory-access") << "a general protection fault says no address";
  EXPECT_EQ(diagnose(s).access, Access::kUnknown);
  s = signal_fault(AppAddr(std::uintptr_t{0x700000000000}));
  s.fault.signal = SIGBUS;
  EXPECT_EQ(word(s), "bus-error");
}

TEST(Diagnose, ASignalInsideTheSpanIsJudgedByTheArea) {
  Snapshot s = in_area(signal_fault(kSpan + 8192), region::AreaState::kLive);
  s.area.in_guard = true;
  EXPECT_EQ(word(s), "vmalloc-guard");
  EXPECT_EQ(word(in_area(signal_fault(kSpan + 8), region::AreaState::kPurged)), "vmalloc-use-after-free");
}

TEST(Diagnose, AFaultJustBelowTheStackPointerIsAStackOverflow) {
  Snapshot s = signal_fault(AppAddr(std::uintptr_t{0x7ffc00000ff8}));
  s.stack_pointer = 0x7ffc00001000;
  EXPECT_EQ(word(s), "stack-overflow");
  s.stack_pointer = 0x7ffc00200000;
  EXPECT_EQ(word(s), "user-memory-access") << "too far away";
  s.stack_pointer = 0x7ffc00001000;
  s.on_stack = true;
  EXPECT_EQ(word(s), "user-memory-access") << "memory of the stack that may not be touched for another reason";
}

Snapshot on_thread_stack(Snapshot s, region::AreaState state) {
  s = in_area(s, state);
  s.area.kind = region::AreaKind::kStack;
  s.area.guard_before = kPageSize;
  return s;
}

TEST(Diagnose, AThreadStackOverflowsIntoItsGuardAndIsUsedAfterItsThread) {
  using region::AreaState;
  const AppAddr guard = kSpan - 8;
  EXPECT_EQ(word(on_thread_stack(signal_fault(guard), AreaState::kLive)), "stack-overflow");
  EXPECT_EQ(word(on_thread_stack(bad_access(guard, ShadowTag::kRegionGuard), AreaState::kLive)), "stack-overflow");
  const Diagnosis overflow = diagnose(on_thread_stack(signal_fault(guard), AreaState::kLive));
  EXPECT_EQ(overflow.place, Place::kRegion);
  EXPECT_EQ(overflow.side, Side::kLeft);
  EXPECT_EQ(overflow.distance, 8u);
  EXPECT_EQ(word(on_thread_stack(bad_access(kSpan + 8192, ShadowTag::kRegionGuard), AreaState::kLive)),
            "stack-out-of-bounds");
  for (const AreaState state : {AreaState::kFreed, AreaState::kPurged}) {
    EXPECT_EQ(word(on_thread_stack(signal_fault(kSpan + 8), state)), "stack-use-after-exit");
    EXPECT_EQ(word(on_thread_stack(bad_access(kSpan + 8, ShadowTag::kRegionFreed), state)), "stack-use-after-exit");
    EXPECT_EQ(word(on_thread_stack(bad_access(kSpan + 8, ShadowTag::kStackGone), state)), "stack-use-after-exit");
  }
}

TEST(Diagnose, WhatCompilersAndProgramsDoToAThreadStackKeepsItsWords) {
  using region::AreaState;
  EXPECT_EQ(word(on_thread_stack(bad_access(kSpan + 64, ShadowTag::kRegionInvalid), AreaState::kLive)),
            "use-after-scope");
  EXPECT_EQ(word(on_thread_stack(bad_access(kSpan + 64, ShadowTag::kStackRight), AreaState::kLive)),
            "stack-out-of-bounds");
  Snapshot protected_zone = on_thread_stack(signal_fault(kSpan + 64), AreaState::kLive);
  EXPECT_EQ(word(protected_zone), "user-memory-access");
  protected_zone.stack_pointer = kSpan.value + 128;
  EXPECT_EQ(word(protected_zone), "stack-overflow");
}

TEST(Diagnose, EveryClassWordIsItsOwnAndOfLettersAndDashes) {
  for (std::size_t i = 0; i < kBugClasses; ++i) {
    const std::string text = class_word(static_cast<BugClass>(i));
    EXPECT_EQ(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz-"), std::string::npos) << text;
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(text, class_word(static_cast<BugClass>(j)));
  }
}

}  // namespace
}  // namespace penumbra::report
