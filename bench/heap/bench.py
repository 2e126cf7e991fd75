"""One malloc and free: glibc, mimalloc, ASan and Penumbra under the same program, interleaved.

ASan is its run-time library, preloaded as ours is: the same allocator and interceptors, with its default options and
its fast unwinder (the program keeps frame pointers, which that one needs and ours does not).
"""

import os
import subprocess

from support import figures, registry

PROGRAM = "bench/heap/pairs"
LIBRARY = "runtime/libpenumbra.so"
EFFORT = {"full": (10, 1_000_000), "quick": (4, 200_000), "moment": (1, 2_000)}  # repeats, loops
SIZES = [16, 100, 1000, 10000, 100000, 1000000]
FRAMES = 20
FLOOR = "glibc"


def subjects(task):
    """Name -> environment. ASan is left out where its library is not installed."""
    library = str(task.build_dir / LIBRARY)
    found = {
        FLOOR: {},
        "mimalloc": {"LD_PRELOAD": "libmimalloc.so.2"},
        "penumbra": {"LD_PRELOAD": library, "PENUMBRA_OPTIONS": "rewrite=0"},
        "penumbra_no_stacks": {"LD_PRELOAD": library, "PENUMBRA_OPTIONS": "rewrite=0:stack_depth=0"},
    }
    asan = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if os.path.isabs(asan):
        found["asan"] = {"LD_PRELOAD": os.path.realpath(asan), "ASAN_OPTIONS": "detect_leaks=0"}
    return found


def measure(task, size, loops, environment):
    plain = registry.plain_environment()
    done = subprocess.run([str(task.build_dir / PROGRAM), str(size), str(FRAMES), str(loops)],
                          env={**plain, **environment}, capture_output=True, text=True)
    if done.returncode != 0 or done.stderr:
        raise registry.BenchError(f"{PROGRAM} with {environment}: status {done.returncode} {done.stderr.strip()}")
    return float(done.stdout)


def run(task):
    repeats, loops = EFFORT[task.effort]
    who = subjects(task)
    rows = []
    for size in SIZES:
        some = max(loops // (1 if size <= 1000 else 10 if size <= 10000 else 50), 1000)
        times = {name: [] for name in who}
        for repeat in range(repeats):
            for name, environment in who.items():
                times[name].append(measure(task, size, some, environment))
                task.report.sample(task.name, size, name, 1, repeat, times[name][-1], "ns")
        for name, values in times.items():
            spread = figures.Spread(values)
            task.report.value(task.name, size, name, spread.median, "ns")
            row = [size, name, spread]
            for other in (FLOOR, "asan"):
                if other in times and name != other:
                    ratio = figures.ratios(values, times[other])
                    row.append(ratio)
                    if name.startswith("penumbra"):
                        task.report.ratio(task.name, size, f"{name}/{other}", ratio)
                else:
                    row.append("")
            rows.append(row)
    print(figures.table(["bytes", "heap", "ns a pair: median (min..max)", f"of {FLOOR}", "of asan"], rows))
    return True


BENCHES = [registry.Bench("heap", f"one malloc and free, {FRAMES} frames deep, beside glibc, mimalloc and ASan",
                          [PROGRAM, LIBRARY], run)]
