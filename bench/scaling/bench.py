"""Scaling in the manner of will-it-scale: N threads and N processes, 1 to twice the CPUs.

Work of N is N times the work of one, over the CPU time of an operation beside that of one: what N CPUs of their own would
do. A row that waits for locks asleep would hide there, so wall operations per second stand beside it; on a machine that
does other things only the former means something. "Shared by nature": threads that want the same unit or the one
global node.

Why nothing else is shared: tests/scaling/atomics_test.cc counts locked operations and the lines they go to.
"""

import os
import subprocess

from support import figures, registry

PROGRAM = "bench/scaling/scaling_bench"
# Row, operations at full effort, shared by nature.
ROWS = [("small", 400_000, False), ("mixed", 60_000, False), ("large", 20_000, True), ("check", 4_000_000, False),
        ("populate_private", 4_000_000, False), ("populate_shared", 4_000_000, True)]
EFFORT = {"full": (1, 9), "quick": (8, 5), "moment": (1000, 1)}  # divisor of operations, rounds
GOAL = 1.9  # work of two threads over that of one


def measure(task, row, mode, n, count):
    """(CPU ns an operation, operations a second of wall time)"""
    command = [str(task.build_dir / PROGRAM), row, mode, str(n), str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise registry.BenchError(f"{' '.join(command[1:])} ended with status {done.returncode}")
    cpu, wall, operations = map(int, done.stdout.split())
    return cpu / operations, operations / max(wall, 1) * 1e9


def run(task):
    divisor, rounds = EFFORT[task.effort]
    counts = sorted({1, 2, *range(1, 2 * os.cpu_count() + 1)}) if task.effort == "full" else [1, 2]
    print(f"{task.name}: {rounds} rounds, {os.cpu_count()} CPUs")
    table = []
    judged = []
    for row, operations, is_shared in ROWS:
        for mode in ("threads", "processes"):
            cpu = {n: [] for n in counts}
            wall = {n: [] for n in counts}
            for repeat in range(rounds):
                for n in counts if repeat % 2 == 0 else reversed(counts):
                    ns, rate = measure(task, row, mode, n, max(operations // divisor, 20))
                    cpu[n].append(ns)
                    wall[n].append(rate)
                    task.report.sample(task.name, row, mode, n, repeat, ns, "ns")
            for n in counts:
                work = figures.Spread(n * one / many for one, many in zip(cpu[1], cpu[n], strict=True))
                rate = figures.Spread(wall[n])
                table.append([f"{row}, {n} {mode}", f"{figures.Spread(cpu[n]).median:.1f}", work,
                              f"{rate.median / 1e6:.3f}"])
                if n != 1:
                    task.report.ratio(task.name, row, f"work_{mode}@{n}", work)
                task.report.value(task.name, row, f"wall_{mode}@{n}", rate.median, "ops/s")
                if n == 2 and mode == "threads":
                    judged.append((row, work, is_shared))
    print(figures.table(["row", "CPU ns/op", "work of N / work of 1", "wall Mops/s"], table))
    for row, work, is_shared in judged:
        verdict = "shared by nature" if is_shared else "holds" if work.median >= GOAL else "missed"
        print(f"  {verdict:16} {row}: two threads do {work.median:.2f} times the work of one, goal {GOAL}")
    return True


BENCHES = [registry.Bench("scaling", "threads and processes, 1 to twice the CPUs", [PROGRAM], run)]
