#!/usr/bin/env python3
"""Breaks the clean-up on purpose, and expects its tests to notice: mutations.py ROOT [NAME...]

Each mutation replaces text in a copy of the sources, builds the test program there and runs the one test that claims
the property. A test that still passes, or a text that is no longer there, is a failure. Prints TAP.
"""

import dataclasses
import pathlib
import shutil
import subprocess
import sys
import tempfile

TIMEOUT = 60  # seconds for one test; a mutant that hangs is noticed by that


@dataclasses.dataclass
class Mutation:
    name: str
    test: str
    edits: list  # (file, old, new)
    program: str = "tests/purge/purge_test"


PURGE = "allocator/purge/purge_inl.h"
COLLECT = "allocator/purge/collect_inl.h"
TEAR_DOWN = "allocator/purge/tear_down_inl.h"
ALLOCATOR = "allocator/region/region_allocator.cc"
WORKER = "allocator/purge/worker.cc"

AGAIN = "if (request_seq_.load(std::memory_order_seq_cst) != pass_.seq && is_threshold_reached()) {"
LATE = "if (!active && request_seq_.load(std::memory_order_seq_cst) != seen && is_threshold_reached()) {"
P1_P5 = "PENUMBRA_CHECK(chunk.stage == Stage::kEmpty && purge_mutex_.is_locked());"

MUTATIONS = [
    Mutation("a request during a pass is lost", "PurgePass.RequestsDuringAPassMakeExactlyOneMore",
             [(PURGE, AGAIN, "if (false) {"), (PURGE, LATE, "if (false) {")]),
    Mutation("a pass is followed by another whatever was asked", "PurgePass.RequestsDuringAPassMakeExactlyOneMore",
             [(PURGE, AGAIN, "if (pass_.seq != 0) {")]),
    Mutation("a pass is followed by another with nothing asked", "PurgePass.WithoutARequestThereIsNoSecond",
             [(PURGE, AGAIN, "if (passes_.load() < 2) {")]),
    Mutation("the pass goes on while a chunk is in hand",
             "PurgePass.ChunkIsSettledBeforeThePassGoesOnAndFlushedOnce",
             [(PURGE, "  if (lane.chunk.stage == Stage::kEmpty) collect_locked(lane);\n  if (lane.chunk.stage != Stage::kEmpty) tear",
               "  if (lane.chunk.stage == Stage::kFlushed && lane.cursor.quota != 0) lane.chunk.stage = Stage::kEmpty;\n"
               "  if (lane.chunk.stage == Stage::kEmpty) collect_locked(lane);\n  if (lane.chunk.stage != Stage::kEmpty) tear"),
              (COLLECT, P1_P5, "")]),
    Mutation("an interrupted chunk is flushed again", "PurgePass.ChunkIsSettledBeforeThePassGoesOnAndFlushedOnce",
             [(TEAR_DOWN, "if (settle_locked(chunk)) chunk.stage = Stage::kEmpty;",
               "chunk.stage = settle_locked(chunk) ? Stage::kEmpty : Stage::kCleared;")]),
    Mutation("an interrupted chunk is cleared again", "PurgePass.StepThatMeetsALockedNodeIsFinishedByTheNext",
             [(TEAR_DOWN, "if (settle_locked(chunk)) chunk.stage = Stage::kEmpty;",
               "chunk.stage = settle_locked(chunk) ? Stage::kEmpty : Stage::kCollected;")]),
    Mutation("an interrupted chunk is forgotten", "PurgePass.StepThatMeetsALockedNodeIsFinishedByTheNext",
             [(TEAR_DOWN, "if (settle_locked(chunk)) chunk.stage", "settle_locked(chunk);\n  chunk.stage")]),
    Mutation("a child forgets the chunk in hand", "PurgePass.ChildThatSkippedTheHooksFinishesTheChunkOfItsParent",
             [("allocator/region/fork_inl.h", "shadow_.repair_after_fork();",
               "shadow_.repair_after_fork();\n  lanes_[0].chunk.stage = Stage::kEmpty;")]),
    Mutation("a step waits for a node's lock", "PurgePass.StepThatMeetsALockedNodeIsFinishedByTheNext",
             [(TEAR_DOWN, "if (pass_.full) {\n    node.lock.lock();", "{\n    node.lock.lock();")]),
    Mutation("a step does not hold the mutex", "PurgePass.EveryDrainerHoldsTheMutex",
             [(PURGE, "const std::uint64_t seen = pass_.seq;\n  const bool active = pass_.active;\n"
               "  purge_mutex_.unlock();\n  look_again(seen, active);\n  return worked;",
               "return worked;"),
              (PURGE, "if (!purge_mutex_.try_lock()) return false;", ""), (COLLECT, P1_P5, "")]),
    Mutation("a purge of everything does not hold the mutex", "PurgePass.EveryDrainerHoldsTheMutex",
             [(PURGE, "tell_late_faults();\n  lock_for_need();", "tell_late_faults();"),
              (PURGE, "purge_mutex_.unlock();\n  look_again(seen, active);\n  return more;", "return more;"),
              (COLLECT, P1_P5, "")]),
    Mutation("pools decay by half", "PurgePass.PoolsThatAreNotNeededDecayByAQuarterAPass",
             [(COLLECT, "(pool.count + 3) / 4", "(pool.count + 1) / 2")]),
    Mutation("pools that are needed decay", "PurgePass.PoolsThatAreNotNeededDecayByAQuarterAPass",
             [(COLLECT, "pool.fewest = pool.count;", "pool.fewest = 0;")]),
    Mutation("a chunk ends behind the area that crosses its bound", "PurgePass.StepTakesNoMorePagesThanItsBound",
             [(COLLECT, "pages + r.pages <= chunk_pages_", "pages < chunk_pages_")]),
    Mutation("areas are torn down in the order they came", "PurgePass.NeighboursAreTornDownTogether",
             [(COLLECT, "h = decay ? kNoHandle : lazy_neighbour_of(h);", "h = kNoHandle;")]),
    Mutation("a call finishes all frees of signal handlers", "PurgePass.CallFinishesAFewFreesOfSignalHandlersAtATime",
             [(PURGE, "kDrainedAtOnce = 64;", "kDrainedAtOnce = 1000;")]),
    Mutation("need purges everything at once", "PurgeShortage.AllocationTakesNoMoreStepsThanItNeeds",
             [(PURGE, "if (more) step_locked(Urgency::kShortage);",
               "while (full_ended_ < shortage.until) step_locked(Urgency::kShortage);")]),
    Mutation("need takes what the pass under way has left", "PurgeShortage.PassThatWasUnderWayIsNotTheWholePass",
             [(PURGE, "const bool more = shortage.until == 0 || full_ended_ < shortage.until;",
               "const bool was = pass_.active;\n  const bool more = shortage.until == full_begun_ + 1 && was;")]),
    Mutation("need gives up at once", "PurgeShortage.RequestThatNothingCanServeEndsAfterOneWholePass",
             [(PURGE, "shortage.until = full_begun_ + 1;", "shortage.until = full_begun_;")]),
    Mutation("the memory limit does not count", "Ruling13.EighthOfTheMemoryLimitBoundsWhatIsFreedAndKept",
             [(ALLOCATOR, "std::min(threshold_pages_, limit / 8)", "std::min(threshold_pages_, limit)")]),
    Mutation("the worker sleeps without a last look", "Worker.RequestBetweenItsLastStepAndItsSleepIsServed",
             [(WORKER, "if (must_stop() || job_.is_due(job_.owner)) {", "if (must_stop()) {")]),
    Mutation("the worker is not woken", "Worker.SleeperIsWoken",
             [(WORKER, "  os::futex_wake(&asleep_, 1).ignore();", "")]),
    Mutation("calls purge beside a worker that keeps up", "Worker.MakesAllStepsWhileItKeepsUp",
             [(PURGE, "if (serves && !is_worker_behind()) return;", "")]),
    Mutation("nobody helps a worker that is behind", "Worker.IsHelpedFromThreeThresholdsOn",
             [(PURGE, "kThresholdsUntilHelp = 3;", "kThresholdsUntilHelp = 3000;")]),
    Mutation("the worker takes signals", "Worker.BlocksEverySignal",
             [("runtime/base/own_thread.cc", "os::block_signals(~os::SignalSet{0})", "os::block_signals(0)")]),
    Mutation("the worker stays for ever", "Worker.EndsWhenIdleAndIsStartedAnew",
             [(WORKER, " || slept.error() != ETIMEDOUT;", " || true;")]),
    Mutation("the worker stays where none may be", "Worker.StandsDownForWhoMustBeAlone",
             [("allocator/purge/worker.h", "return held_.load(std::memory_order_seq_cst) != 0;", "return false;")]),
    Mutation("a child believes in its parent's worker", "Worker.ForkedChildHasNoneAndStartsItsOwn",
             [(WORKER, "state_.store(State::kNone, std::memory_order_relaxed);", "")]),
    Mutation("helpers are not joined", "WorkerHelpers.AreJoinedBeforeTheStepEnds",
             [("allocator/purge/crew.cc", "while (is_given[n] && order.load(std::memory_order_acquire) == kWork) {", "if (false) {")]),
    Mutation("there are no helpers", "WorkerHelpers.PurgeTheNodesOfALargeBacklogSideBySide",
             [(PURGE, "waiting < static_cast<std::int64_t>(2 * threshold_pages_)) return 1;", "waiting != 0) return 1;")]),
    Mutation("helpers come for any backlog", "WorkerHelpers.AreNotThereForASmallBacklog",
             [(PURGE, "waiting < static_cast<std::int64_t>(2 * threshold_pages_)) return 1;", "waiting == 0) return 1;"),
              (PURGE, "static_cast<std::uint64_t>(waiting) / threshold_pages_;", "2;")]),
    Mutation("what helpers had in hand is forgotten", "WorkerHelpers.LanesAreFinishedByOthersStepsWhenTheWorkerGoes",
             [(PURGE, "    if (!lane.is_idle()) return lane;", "    if (false) return lane;")]),
    Mutation("a child that skipped the hooks believes in its parent's worker",
             "Worker.ChildThatSkippedTheHooksStandsWithoutOne",
             [(WORKER, " &&\n         pid_.load(std::memory_order_relaxed) == os::getpid();", ";")]),
]


def copy_sources(root, to):
    """Without what builds and git keep at the top; a source may well begin with `build`."""
    shutil.copytree(root, to, symlinks=True,
                    ignore=lambda folder, names: [n for n in names if pathlib.Path(folder) == root and n.startswith((".git", "build"))])


def run(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def is_noticed(scratch, mutation):
    """(noticed, what to say). Leaves the sources as they were."""
    before = {}
    try:
        for file, old, new in mutation.edits:
            path = scratch / "source" / file
            text = path.read_text(encoding="utf-8")
            before.setdefault(path, text)
            if text.count(old) != 1:
                return False, f"{file} does not have this text once: {old.splitlines()[0]}"
            path.write_text(text.replace(old, new), encoding="utf-8")
        built = run(["ninja", "-C", str(scratch / "build"), mutation.program])
        if built.returncode != 0:
            return False, "does not build:\n" + built.stdout[-2000:]
        try:
            tested = run([str(scratch / "build" / mutation.program), f"--gtest_filter={mutation.test}"],
                         timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return True, "hangs"
        if "[==========] Running 1 test" not in tested.stdout:
            return False, f"there is no test {mutation.test}"
        return tested.returncode != 0, f"{mutation.test} passes all the same"
    finally:
        for path, text in before.items():
            path.write_text(text, encoding="utf-8")


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    chosen = [m for m in MUTATIONS if not sys.argv[2:] or m.name in sys.argv[2:]]
    with tempfile.TemporaryDirectory(prefix="penumbra-mutations-") as folder:
        scratch = pathlib.Path(folder)
        copy_sources(root, scratch / "source")
        set_up = run(["meson", "setup", str(scratch / "build"), str(scratch / "source"), "-Dbenches=false"])
        programs = {m.program for m in chosen}
        built = run(["ninja", "-C", str(scratch / "build"), *programs]) if set_up.returncode == 0 else set_up
        if built.returncode != 0:
            print(built.stdout[-3000:])
            return 1
        print(f"1..{len(chosen)}")
        missed = 0
        for number, mutation in enumerate(chosen, 1):
            noticed, why = is_noticed(scratch, mutation)
            print(f"{'ok' if noticed else 'not ok'} {number} - noticed: {mutation.name}", flush=True)
            if not noticed:
                missed += 1
                print(f"# {why}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
