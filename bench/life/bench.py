"""What a process, a thread and a start cost: CPU time for one, alone and under Penumbra.

    heap      rewrite=0          full      everything checked, module files at hand
    stacks=0  full, but threads keep the stacks that glibc gives them

The goals are of a start with a warm cache: a small program within 10 ms, python3 within 30 ms.
"""

import os
import pathlib
import subprocess
import tempfile

from support import figures, registry

PROGRAM = "bench/life/life"
LIBRARY = "runtime/libpenumbra.so"
LAUNCHER = "runtime/launcher/penumbra"
# name: what to do, how often by effort
ROWS = {
    "fork": (["fork"], {"full": 300, "quick": 100, "moment": 2}),
    "thread": (["thread"], {"full": 2000, "quick": 500, "moment": 5}),
    "thread-100k": (["thread-100k"], {"full": 1000, "quick": 300, "moment": 5}),
    "start-true": (["start", "/bin/true"], {"full": 50, "quick": 20, "moment": 1}),
    "start-python3": (["start", "/usr/bin/python3", "-S", "-E", "-c", "pass"], {"full": 20, "quick": 8, "moment": 1}),
}
ROUNDS = {"full": 9, "quick": 5, "moment": 1}
OPTIONS = {"native": None, "heap": "rewrite=0", "full": "rewrite=1", "stacks=0": "rewrite=1:stacks=0"}


def run(task):
    program = str(task.build_dir / PROGRAM)
    plain = registry.plain_environment()
    with tempfile.TemporaryDirectory(prefix="penumbra-life.") as cache:
        os.chmod(cache, 0o700)

        def cost(way, what, count):
            environment = dict(plain)
            if OPTIONS[way] is not None:
                environment |= {"LD_PRELOAD": str(task.build_dir / LIBRARY), "PENUMBRA_OPTIONS": f"{OPTIONS[way]}:cache={cache}"}
            done = subprocess.run([program, what[0], str(count), *what[1:]], stdout=subprocess.PIPE, text=True, env=environment)
            if done.returncode != 0:
                raise registry.BenchError(f"life {what[0]} ended with status {done.returncode} ({way})")
            return float(done.stdout)

        # Module files for all that is measured.
        for command in ([program, "fork", "1"], ["/bin/true"], ["/usr/bin/python3", "-S", "-E", "-c", "pass"]):
            if pathlib.Path(command[0]).exists():
                subprocess.run([str(task.build_dir / LAUNCHER), f"cache={cache}", *command], stdout=subprocess.DEVNULL, env=plain,
                               check=False)
        rows = []
        for name, (what, counts) in ROWS.items():
            if what[0] == "start" and not pathlib.Path(what[1]).exists():
                continue
            costs = {way: [] for way in OPTIONS}
            for repeat in range(ROUNDS[task.effort]):
                ways = list(OPTIONS)
                ways = ways[repeat % len(ways):] + ways[:repeat % len(ways)]
                for way in ways:
                    costs[way].append(cost(way, what, counts[task.effort]) / 1000)
                    task.report.sample(task.name, name, way, 1, repeat, costs[way][-1], "us")
            rows.append([name, *(figures.Spread(costs[way]) for way in OPTIONS)])
            for way, values in costs.items():
                task.report.value(task.name, name, way, figures.Spread(values).median, "us")
                if way != "native":
                    task.report.ratio(task.name, name, f"{way}/native", figures.ratios(values, costs["native"]))
    print(figures.table([f"{task.name}: {ROUNDS[task.effort]} rounds, CPU time, us", *OPTIONS], rows))
    return True


BENCHES = [registry.Bench("life", "what a fork, a thread and a start cost", [PROGRAM, LIBRARY, LAUNCHER], run)]
