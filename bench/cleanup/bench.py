"""Clean-up pauses over chunk sizes: bursts of areas go out of use while two threads allocate and free.

The sweep runs each chunk size, and "unchunked" (a whole pass in one step), without the page bound; `default` is the
default chunk size with its page bound, `worker` the same made by the allocator's own thread (worker=1), whose CPU time
counts in the total. Ratios are taken between neighbours in time: default, worker and unchunked take turns.
All times are thread CPU time (memory rulings 10, 22); an operation is an allocation and a free with what falls to the
thread in them (main.cc).
"""

import csv
import os
import pathlib
import shutil
import subprocess
import time

from support import figures, registry

PROGRAM = "bench/cleanup/cleanup_bench"
SCENARIOS = ["once", "expiring", "mixed"]
UNCHUNKED = 0
DEFAULT_CHUNK, DEFAULT_PAGES = 64, 512  # purge_chunk and purge_pages in runtime/base/flags.inc
# All powers of two, those first that decide most: the time may be up before the others.
POWERS = [64, 32, 128, 16, 256, 1024, 8, 512, 1, 4, 2]


class Effort:
    def __init__(self, bursts, pairs, sizes, rounds, seconds):
        self.bursts = bursts  # areas
        self.pairs = pairs  # operations of each thread
        self.sizes = sizes
        self.rounds = rounds  # of default against unchunked, each scenario
        self.seconds = seconds  # no run of the sweep begins later, but the first of two sizes


EFFORTS = {
    "full": Effort([100_000, 500_000], 100_000, POWERS, 7, 600),
    "quick": Effort([100_000], 30_000, [64, 16, 256, 1], 3, 30),
    "moment": Effort([2_000], 1_000, [64], 1, 0),
}

# Column of the table, name in the program's line, factor to what is shown.
COLUMNS = [("step us min", "step_min", 1e-3), ("avg", "step_avg", 1e-3), ("max", "step_max", 1e-3),
           ("var", "step_variance", 1), ("p99.9", "step_p999", 1e-3),
           ("operation us min", "operation_min", 1e-3), ("avg", "operation_avg", 1e-3),
           ("max", "operation_max", 1e-3), ("var", "operation_variance", 1), ("p99.9", "operation_p999", 1e-3),
           ("total ms", "total", 1e-6)]


def name_of(chunk):
    return "unchunked" if chunk == UNCHUNKED else str(chunk)


def measure(task, scenario, burst, pairs, chunk, pages, purger="calls"):
    command = [str(task.build_dir / PROGRAM), scenario, str(burst), str(pairs), str(chunk), str(pages), purger]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise registry.BenchError(f"{' '.join(command[1:])} ended with status {done.returncode}")
    return {name: float(value) for name, value in (word.split("=") for word in done.stdout.split())}


def sweep(task, effort, burst, sizes, results, until):
    """Adds one run of each size in each scenario to `results`, as far as the time goes; the first two sizes always."""
    for size in sizes:
        for scenario in SCENARIOS:
            is_needed = size in sizes[:2] and (burst, scenario, size) not in results
            if time.monotonic() > until and not is_needed:
                return
            got = measure(task, scenario, burst, effort.pairs, size, 0)
            results.setdefault((burst, scenario, size), []).append(got)
            for column in ("step_max", "operation_variance", "operation_max", "total"):
                task.report.sample(task.name, f"{scenario}-{burst}", name_of(size), 2,
                                   len(results[burst, scenario, size]) - 1, got[column],
                                   "us2" if column.endswith("variance") else "ns")


def median(runs, name):
    return figures.Spread(run[name] for run in runs).median


def best_size(effort, results):
    """The size with the least total among those that keep every scenario's longest step under the goal, else the one
    with the shortest."""
    complete = [size for size in effort.sizes
                if all((burst, scenario, size) in results for burst in effort.bursts for scenario in SCENARIOS)]
    worst = {size: max(median(results[burst, scenario, size], "step_max")
                       for burst in effort.bursts for scenario in SCENARIOS) for size in complete}
    total = {size: sum(median(results[burst, scenario, size], "total")
                       for burst in effort.bursts for scenario in SCENARIOS) for size in worst}
    good = [size for size in worst if worst[size] < 250e3]
    return min(good, key=total.get) if good else min(worst, key=worst.get)


def print_tables(effort, sizes, results):
    for burst in effort.bursts:
        for scenario in SCENARIOS:
            rows = [[name_of(size)] + [f"{median(results[burst, scenario, size], name) * factor:.4g}"
                                       for _, name, factor in COLUMNS]
                    for size in sizes if (burst, scenario, size) in results]
            print(figures.table([f"{scenario}, {burst} areas"] + [title for title, _, _ in COLUMNS], rows))
            print()


def write_files(task, effort, sizes, results):
    """cleanup.csv and cleanup.svg (where gnuplot is installed) in the build folder."""
    folder = pathlib.Path(task.build_dir) / "bench" / "cleanup"
    names = [name for _, name, _ in COLUMNS]
    table = folder / "cleanup.csv"
    with open(table, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["areas", "scenario", "chunk", *names])
        for burst in effort.bursts:
            for scenario in SCENARIOS:
                for size in sizes:
                    runs = results.get((burst, scenario, size))
                    if runs:
                        out.writerow([burst, scenario, name_of(size), *(median(runs, name) for name in names)])
    print(f"table: {table}")
    if shutil.which("gnuplot") is None:
        print("no plot: gnuplot is not installed")
        return
    lines = []
    data = []
    for burst in effort.bursts:
        for scenario in SCENARIOS:
            title = f"{scenario} {burst}"
            for what, column in (("longest step, us", "step_max"), ("variance of operations, us^2",
                                                                    "operation_variance")):
                block = f"$d{len(data)}"
                points = [f"{size} {median(results[burst, scenario, size], column) * (1e-3 if column == 'step_max' else 1)}"
                          for size in sizes if size != UNCHUNKED and (burst, scenario, size) in results]
                data.append(f"{block} << EOD\n" + "\n".join(points) + "\nEOD")
                lines.append(f"{block} using 1:2 with linespoints title '{title}: {what}'")
    plot = folder / "cleanup.svg"
    script = "\n".join(data) + f"""
set terminal svg size 1000,700
set output '{plot}'
set logscale xy 2
set xlabel 'areas in a step (chunk size)'
set key outside bottom
plot {', '.join(lines)}
"""
    done = subprocess.run(["gnuplot"], input=script, text=True, stderr=subprocess.PIPE)
    print(f"plot: {plot}" if done.returncode == 0 else f"no plot: {done.stderr.strip()}")


def compare_default(task, effort):
    """Default and worker against unchunked in turns; the worst scenario makes the RATIO rows."""
    burst = effort.bursts[0]
    rows = {"default": [], "worker": []}
    for scenario in SCENARIOS:
        runs = {"default": [], "worker": [], "unchunked": []}
        turn = [("default", DEFAULT_CHUNK, DEFAULT_PAGES, "calls"), ("worker", DEFAULT_CHUNK, DEFAULT_PAGES, "worker"),
                ("unchunked", UNCHUNKED, 0, "calls")]
        for repeat in range(effort.rounds):
            for name, chunk, pages, purger in turn if repeat % 2 == 0 else reversed(turn):
                runs[name].append(measure(task, scenario, burst, effort.pairs, chunk, pages, purger))
        theirs = runs["unchunked"]
        for name, made in rows.items():
            mine = runs[name]
            total = figures.ratios([r["total"] for r in mine], [r["total"] for r in theirs])
            variance = figures.ratios([r["operation_variance"] for r in mine],
                                      [max(r["operation_variance"], 1e-9) for r in theirs])
            made.append((scenario, total, variance, figures.Spread(r["step_max"] / 1e3 for r in mine)))
    for name, made in rows.items():
        print(figures.table([f"{name} ({DEFAULT_CHUNK} areas, {DEFAULT_PAGES} pages), {burst} areas, {effort.rounds} rounds",
                             "total/unchunked", "variance/unchunked", "longest step us"], made))
        for column, index in (("total/unchunked", 1), ("variance/unchunked", 2)):
            task.report.ratio(task.name, name, column, max(made, key=lambda row: row[index].median)[index])
        longest = max(row[3].median for row in made)
        task.report.value(task.name, name, "longest_step_us", longest, "us")
        for what, value, limit in (("total/unchunked", max(row[1].median for row in made), 1.022),
                                   ("variance/unchunked", max(row[2].median for row in made), 0.03),
                                   ("longest step in us", longest, 250)):
            print(f"  {'holds ' if value <= limit else 'missed'}  {what}: {value:.4g}, goal at most {limit}")
        print()


def run(task):
    effort = EFFORTS[task.effort]
    print(f"{task.name}: {os.cpu_count()} CPUs, two allocating threads with {effort.pairs} operations each, "
          "thread CPU time, medians\n")
    until = time.monotonic() + effort.seconds
    compare_default(task, effort)
    print()
    results = {}
    sizes = [UNCHUNKED, *effort.sizes]
    for index, burst in enumerate(effort.bursts, 1):
        # Each burst has its share of the time.
        sweep(task, effort, burst, sizes, results, until - effort.seconds * (1 - index / len(effort.bursts)))
    best = best_size(effort, results)
    if task.effort == "full":
        for neighbour in (best * 3 // 4, best * 3 // 2):
            if neighbour not in sizes and 1 < neighbour < 1024:
                sizes.append(neighbour)
                for burst in effort.bursts:
                    sweep(task, effort, burst, [neighbour], results, until)
        while time.monotonic() < until:
            for burst in effort.bursts:
                sweep(task, effort, burst, sizes, results, until)
    sizes = sorted(size for size in sizes if size != UNCHUNKED) + [UNCHUNKED]
    print_tables(effort, sizes, results)
    print(f"best: {best} areas a step (least total of those whose longest step stays under 250 us)")
    task.report.value(task.name, "sweep", "best_chunk", best, "areas")
    write_files(task, effort, sizes, results)
    print()
    return True


BENCHES = [registry.Bench("cleanup", "clean-up pauses, chunked and unchunked, over chunk sizes", [PROGRAM], run)]
