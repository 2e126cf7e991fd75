#!/usr/bin/env python3
"""Each kernel bug that taught us something, and the tests that hold the lesson: lessons.py ROOT

The numbers are those of the fact sheet's list (KASAN_VMALLOC's fixes from December 2019 on). Fails when a test named
here is in no source file any more, so that a lesson cannot be lost in a clean-up of tests.
"""

import pathlib
import re
import sys

LESSONS = {
    1: ("vm_map_ram without shadow: populate where addresses are chosen, not in wrappers",
        ["VmapTest.RamMappingsAliasTheirPagesAndEndAtOnce", "RegionFailures.NothingWorksWhenEveryCallFailsAndAllRecovers"]),
    2: ("releasing made page tables", ["Ruling2.PurgedSpaceLeavesNoPageTablesForForkToCopy",
                                        "Units.SparseTakeLeavesEmptyUnitsAloneAndClearsLeftovers"]),
    3: ("a failed populate was ignored", ["PerCpuTest.AnyRefusedCallIsNullAndLeavesNothing",
                                          "VmapTest.AnyRefusedCallIsNullAndLeavesNothing"]),
    4: ("the rounded size was taken for the requested one", ["Lesson4.HugeAreaEndsWhereItWasAskedToEnd"]),
    5: ("an area was seen before its shadow", ["RegionConcurrency.ThreadsNeverSeeEachOthersAreasOrShadow"]),
    6: ("one large area took a minute", ["Lesson6.StepOfAPurgeIsBoundedByWorkNotByWhatWaits",
                                        "Ruling4.SixtyFourGiBTakeLessThanOneMiBAndAHandfulOfCalls"]),
    7: ("a look without the lock raced with the release", ["Units.ConcurrentTakesReleasesAndFlushesLeaveNothing"]),
    8: ("a page was freed twice", ["Units.RescuedUnitThatDiesAgainIsQueuedOnce", "FramePool.NoFrameHasTwoOwners"]),
    9: ("batched writes were not seen by their writer", ["Units.TakerRescuesADyingUnitWithoutRefillingIt"]),
    10: ("memory was asked for where that is forbidden, and leaked", ["Units.FailedMultiUnitTakeUnwindsWhatItTook",
                                                                      "RegionFailures.EveryCallMayFailOnceWithMarkers"]),
    11: ("the caller's context did not reach the populate", ["Ruling9.FreeFromASignalClaimsAtOnceAndIsFinishedLater"]),
    12: ("a flush for each area", ["Tlb.PurgeFlushesOnceAChunkAndPaysTheModelledCostThatOften",
                                   "Ruling12.ChunkIsOneFlushAndFewCalls"]),
    # Beside it tests/scaling/atomics_test.cc, which counts the locked operations on shared lines.
    13: ("one lock for all page tables", ["Ruling14.NodesDoNotShareShadowUnits"]),
    14: ("no yield in a long release", ["Lesson6.StepOfAPurgeIsBoundedByWorkNotByWhatWaits",
                                        "PurgePass.StepTakesNoMorePagesThanItsBound"]),
    15: ("resizing by odd sizes", ["Lesson15.ResizingByOddBytesMovesTheEndExactly"]),
    16: ("a report waited for a lock", ["ReportLock.WaitingIsBounded"]),
    17: ("a drainer without the mutex", ["PurgePass.EveryDrainerHoldsTheMutex"]),
    18: ("one object in several areas had several identities", ["PerCpuTest.BoundsAreExactOnEveryCpu"]),
    19: ("huge sparse areas were shadowed whole", ["Ruling4.OnlyEdgeUnitsOfALargeAreaArePopulated"]),
    20: ("shadow went before the memory", ["Lesson20.MemoryIsOutOfReachBeforeItsShadowGoes"]),
    21: ("the flushed range relied on the order of a list", ["Lesson21.AreasInAnyOrderAreAllFlushed",
                                                            "PurgePass.NeighboursAreTornDownTogether"]),
}

TEST = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)")


def main():
    root = pathlib.Path(sys.argv[1])
    known = {f"{suite}.{name}" for source in (root / "tests").rglob("*_test.cc")
             for suite, name in TEST.findall(source.read_text(encoding="utf-8"))}
    missing = [f"lesson {number} ({bug}): no test {test}" for number, (bug, tests) in LESSONS.items()
               for test in tests if test not in known]
    print("\n".join(missing))
    return 1 if missing or sorted(LESSONS) != list(range(1, 22)) else 0


if __name__ == "__main__":
    sys.exit(main())
