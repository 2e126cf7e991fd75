"""One flush per area against one per chunk, for machines that are modelled by the cost of a flush.

The cost is spent as CPU time: 1 us + 29 us for each modelled CPU. What the kernel's drain of 2,805 areas would take is
the measured time of one area times as many.
"""

import subprocess

from support import figures, registry

PROGRAM = "bench/tlb/tlb_bench"
CPUS = [2, 64, 256, 448]
KERNEL_AREAS = 2805
CHUNK = 64  # default of purge_chunk; areas that are closed, as here, count twice in it
# Areas purged with a flush each (fewer where each takes long), areas purged by the chunk, rounds.
EFFORT = {"full": (280, 2805, 5), "quick": (70, 640, 3), "moment": (4, 64, 1)}


def measure(task, cpus, areas, chunk):
    """(ns an area, flushes)"""
    command = [str(task.build_dir / PROGRAM), str(cpus), str(areas), str(chunk)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise registry.BenchError(f"{' '.join(command[1:])} ended with status {done.returncode}")
    ns, flushes = map(int, done.stdout.split())
    return ns / areas, flushes


def run(task):
    singly, together, rounds = EFFORT[task.effort]
    rows = []
    for cpus in CPUS:
        each, chunked = [], []
        for repeat in range(rounds):
            ns, _ = measure(task, cpus, singly, 1)
            each.append(ns)
            ns, flushes = measure(task, cpus, together, CHUNK)
            chunked.append(ns)
            task.report.sample(task.name, f"{cpus}_cpus", "per_area", 1, repeat, each[-1], "ns")
            task.report.sample(task.name, f"{cpus}_cpus", "per_chunk", 1, repeat, chunked[-1], "ns")
        ratio = figures.ratios(chunked, each)
        area, chunk = figures.Spread(each).median, figures.Spread(chunked).median
        rows.append([cpus, f"{(1 + 29 * cpus) / 1000:.2f}", f"{area / 1000:.1f}", f"{chunk / 1000:.1f}", ratio,
                     f"{area * KERNEL_AREAS / 1e9:.2f}", f"{chunk * KERNEL_AREAS / 1e9:.3f}"])
        task.report.ratio(task.name, f"{cpus}_cpus", "per_chunk/per_area", ratio)
        task.report.value(task.name, f"{cpus}_cpus", "per_area_us", area / 1000, "us")
        task.report.value(task.name, f"{cpus}_cpus", "per_chunk_us", chunk / 1000, "us")
    print(f"{task.name}: thread CPU time, {rounds} rounds; {together} areas by the chunk took {flushes} flushes")
    print(figures.table(["modelled CPUs", "flush ms", "us an area: a flush each", "a flush a chunk", "chunk/each",
                         f"s for {KERNEL_AREAS} areas: each", "chunk"], rows))
    return True


BENCHES = [registry.Bench("tlb", "one flush per area against one per chunk on modelled CPUs", [PROGRAM], run)]
