"""The unwinder and the depot: nanoseconds, nanoseconds a frame, and how they compare with libunwind and backtrace().

One thread, so its CPU time is what counts. The program interleaves its benchmarks at random; a ratio is taken between the same repeats of two of them.
"""

import json
import subprocess

from support import figures, registry

PROGRAM = "bench/stacks/unwind_bench"
EFFORT = {"full": (15, "0.3"), "quick": (5, "0.1"), "moment": (1, "0.001")}  # repeats, seconds each at least
WALKS = {"BM_Unwind": "ours", "BM_UnwindExactly": "ours_exactly", "BM_Libunwind": "libunwind", "BM_GlibcBacktrace": "backtrace"}
RECORDS = {"BM_DepotPut": "put", "BM_RecordSameStack": "record_same", "BM_RecordNearbyStacks": "record_nearby"}


def measure(task):
    repeats, seconds = EFFORT[task.effort]
    done = subprocess.run(
        [str(task.build_dir / PROGRAM), f"--benchmark_repetitions={repeats}", f"--benchmark_min_time={seconds}",
         "--benchmark_enable_random_interleaving=true", "--benchmark_format=json"],
        stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise registry.BenchError(f"{PROGRAM} ended with status {done.returncode}")
    times = {}
    for entry in json.loads(done.stdout)["benchmarks"]:
        if entry["run_type"] != "iteration":
            continue
        if entry.get("error_occurred"):
            raise registry.BenchError(f"{entry['name']}: {entry['error_message']}")
        name, argument = entry["name"].split("/")[:2]
        times.setdefault((name, argument), []).append((entry["cpu_time"], entry["frames"]))
    return times


def run(task):
    times = measure(task)
    rows = []
    for (name, argument), values in sorted(times.items(), key=lambda item: (int(item[0][1]), item[0][0])):
        label = WALKS.get(name) or RECORDS[name]
        row = f"frames_{argument}" if name in WALKS else f"depth_{argument}"
        whole = figures.Spread(time for time, _ in values)
        frame = figures.Spread(time / frames for time, frames in values)
        rows.append([row, label, whole, frame])
        task.report.value(task.name, row, label, whole.median, "ns")
        task.report.value(task.name, row, f"{label}_frame", frame.median, "ns")
        for repeat, (time, _) in enumerate(values):
            task.report.sample(task.name, row, label, 1, repeat, time, "ns")
        if name in ("BM_Libunwind", "BM_GlibcBacktrace"):
            ours = [time for time, _ in times["BM_Unwind", argument]]
            theirs = [time for time, _ in values]
            task.report.ratio(task.name, row, f"ours/{label}", figures.ratios(ours, theirs))
    print(figures.table(["stacks", "what", "ns: median (min..max)", "ns a frame"], rows))
    return True


BENCHES = [registry.Bench("stacks", "following and recording stacks, beside libunwind and backtrace()", [PROGRAM], run)]
