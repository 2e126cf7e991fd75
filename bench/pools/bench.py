"""A scratch buffer for a moment: a mapping each time against the reference-counted per-CPU pool, per buffer size."""

import subprocess

from support import figures, registry

PROGRAM = "bench/pools/pools_bench"
SIZES = [4096, 16384, 65536, 262144]
THREADS = [1, 2]
EFFORT = {"full": (20000, 7), "quick": (4000, 3), "moment": (50, 1)}  # uses of a page each, rounds


def measure(task, backend, size, uses, threads):
    command = [str(task.build_dir / PROGRAM), backend, str(size), str(uses), str(threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise registry.BenchError(f"{' '.join(command[1:])} ended with status {done.returncode}")
    ns, missed = done.stdout.split()
    if int(missed) != 0:
        raise registry.BenchError(f"{' '.join(command[1:])}: {missed} uses found no buffer")
    return float(ns)


def run(task):
    uses, rounds = EFFORT[task.effort]
    rows = []
    for size in SIZES:
        for threads in THREADS:
            some = max(uses * 4096 // size, 20)
            times = {"clone": [], "per_cpu": []}
            for repeat in range(rounds):
                for backend in (times if repeat % 2 == 0 else reversed(times)):
                    times[backend].append(measure(task, backend, size, some, threads))
                    task.report.sample(task.name, size, backend, threads, repeat, times[backend][-1], "ns")
            ratio = figures.ratios(times["per_cpu"], times["clone"])
            rows.append([f"{size >> 10} KiB, {threads} thread{'s' * (threads > 1)}", figures.Spread(times["clone"]),
                         figures.Spread(times["per_cpu"]), ratio])
            task.report.ratio(task.name, f"{size}@{threads}", "per_cpu/clone", ratio)
            for backend, values in times.items():
                task.report.value(task.name, f"{size}@{threads}", backend, figures.Spread(values).median, "ns")
    print(figures.table([f"{task.name}: {rounds} rounds, CPU time", "clone per use, ns", "per-CPU pool, ns",
                         "per-CPU/clone"], rows))
    return True


BENCHES = [registry.Bench("pools", "scratch buffers: a mapping each time, and the per-CPU pool", [PROGRAM], run)]
