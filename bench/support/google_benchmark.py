"""Plugs a Google Benchmark program in: its real time per operation, the median of its repeats, as VALUE lines."""

import json
import subprocess

from support import figures, registry

_EFFORT = {"full": (10, "0.5"), "quick": (3, "0.1"), "moment": (1, "0.001")}  # repeats, seconds each at least


def bench(name, description, program):
    """`program` is the target's path in the build folder."""
    return registry.Bench(name, description, [program], lambda task: run(task, program))


def run(task, program):
    """Returns whether the program ran well; a row is a benchmark's name, the unit nanoseconds."""
    repeats, seconds = _EFFORT[task.effort]
    done = subprocess.run(
        [str(task.build_dir / program), f"--benchmark_repetitions={repeats}", f"--benchmark_min_time={seconds}",
         "--benchmark_enable_random_interleaving=true", "--benchmark_format=json"],
        stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise registry.BenchError(f"{program} ended with status {done.returncode}")
    scale = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
    times = {}
    for run_ in json.loads(done.stdout)["benchmarks"]:
        if run_["run_type"] != "iteration":
            continue
        if run_.get("error_occurred"):
            raise registry.BenchError(f"{run_['name']}: {run_['error_message']}")
        times.setdefault(run_["name"], []).append(run_["real_time"] * scale[run_["time_unit"]])
    rows = []
    for row, values in times.items():
        spread = figures.Spread(values)
        rows.append([row, spread])
        task.report.value(task.name, row.replace(" ", "_"), "real_time", spread.median, "ns")
        for repeat, value in enumerate(values):
            task.report.sample(task.name, row, program, 1, repeat, value, "ns")
    print(figures.table([f"{task.name}: {repeats} repeats", "ns: median (min..max)"], rows))
    return True
