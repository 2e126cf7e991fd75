"""Programs as users have them, under Penumbra: beside themselves, beside Valgrind and, from source, beside ASan.

Time is the CPU time of the process, user and system, so that other work on the machine disturbs little. The ways of
running one program go round robin within each repeat, beginning with another one each time, and ratios are taken round
by round.

    full      everything checked, module files at hand     heap      rewrite=0: only malloc, free and libc's entries
    relocate  as full, but code is moved without checks     valgrind  memcheck with its defaults, on a smaller input
    asan      gcc -O2 -fsanitize=address, without the search for leaks

Start-up is left out by measuring each way also on an empty input; the median of its empty runs is taken off each run.
`full+start/native` and `peak/native` (largest resident set) are of whole runs. `full/asan` compares builds of the same
source, so its rows stand for other binaries than the rest of the row. The environment variable BENCH_PROGRAMS names a
few programs to measure only those.
"""

import dataclasses
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from support import figures, registry

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))
import inputs  # noqa: E402  (the path is set above)
import sources  # noqa: E402

LIBRARY = "runtime/libpenumbra.so"
LAUNCHER = "runtime/launcher/penumbra"
MEASURE = "bench/programs/measure"
SYSTEM_PATH = "/usr/bin:/bin"
GOALS = {"full/native": (1.6, 2.2), "full+start/native": (1.7, None), "full/asan": (0.8, None),
         "heap/native": (1.15, None)}
COLUMNS = ["full/native", "full+start/native", "full/valgrind", "full/asan", "heap/native", "relocate/native",
           "peak/native"]


@dataclasses.dataclass(frozen=True)
class Program:
    """A command line around `work`, the input of some scale; `empty` does nothing but start and end."""

    name: str
    executable: str
    # Input of a scale -> arguments; where the input is a file, it is made first.
    arguments: object
    empty: list
    scales: dict  # by effort; "valgrind" for what runs there


def _script(name):
    return str(FOLDER / "work" / name)


def _sql(scale):
    return (FOLDER / "work/work.sql").read_text().replace("SCALE", str(scale))


def programs(folder):
    """All programs; inputs go to `folder`."""
    (folder / "empty").touch()
    (folder / "empty.c").touch()

    def made(make, name, scale):
        path = folder / f"{scale}.{name}"
        if not path.exists():
            make(path, scale)
        return str(path)

    cc1 = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True).stdout.strip()
    empty = str(folder / "empty")
    return [
        Program("bzip2", "bzip2", lambda s: ["-c", made(inputs.text, "txt", s)], ["-c", empty],
                {"full": 6000, "quick": 2000, "moment": 20, "valgrind": 200}),
        Program("xz", "xz", lambda s: ["-2", "-T1", "-c", made(inputs.text, "txt", s)], ["-2", "-T1", "-c", empty],
                {"full": 6000, "quick": 2000, "moment": 20, "valgrind": 200}),
        Program("lua", "lua5.4", lambda s: [_script("work.lua"), str(s)], ["-e", ""],
                {"full": 150, "quick": 50, "moment": 1, "valgrind": 2}),
        Program("sqlite", "sqlite3", lambda s: [":memory:", _sql(s)], [":memory:", "select 1"],
                {"full": 150, "quick": 50, "moment": 1, "valgrind": 2}),
        Program("perl", "perl", lambda s: [_script("work.pl"), str(s)], ["-e", "1"],
                {"full": 150, "quick": 50, "moment": 2, "valgrind": 2}),
        Program("python", "python3", lambda s: ["-S", "-E", _script("work.py"), str(s)], ["-S", "-E", "-c", "pass"],
                {"full": 150, "quick": 50, "moment": 1, "valgrind": 2}),
        Program("cc1", cc1, lambda s: ["-quiet", "-O2", made(inputs.c_source, "c", s), "-o", "-"],
                ["-quiet", "-O2", str(folder / "empty.c"), "-o", "-"],
                {"full": 100, "quick": 20, "moment": 1, "valgrind": 3}),
    ]


REPEATS = {"full": 10, "quick": 3, "moment": 1}


@dataclasses.dataclass(frozen=True)
class Cost:
    seconds: float
    peak_kib: int


class Bench:
    def __init__(self, task, folder):
        self.task = task
        self.folder = folder
        self.library = str(task.build_dir / LIBRARY)
        self.plain = registry.plain_environment()
        self.plain["LC_ALL"] = "C"

    def prepare(self, executables):
        """Module files of the programs and their libraries, with checks and without."""
        files = set()
        for executable in executables:
            files.add(os.path.realpath(executable))
            listing = subprocess.run(["ldd", executable], capture_output=True, text=True).stdout
            files.update(os.path.realpath(word) for word in listing.split()
                         if word.startswith("/") and "/ld-linux" not in word)
        launcher = str(self.task.build_dir / LAUNCHER)
        for way, options in (("full", []), ("relocate", ["--relocate-only"])):
            cache = self.folder / way
            cache.mkdir(mode=0o700)
            # A library without a build-id is no failure of the others.
            subprocess.run([launcher, "rewrite", *options, "-o", str(cache), *sorted(files)], stderr=subprocess.DEVNULL)
            if not any(cache.iterdir()):
                raise registry.BenchError("the rewriter made no module file")

    def cost(self, way, command):
        """Runs the command one way; a run that fails or says something of its own is no figure."""
        environment = dict(self.plain)
        if way in ("full", "relocate", "heap"):
            rewrite = "rewrite=0" if way == "heap" else f"rewrite=1:cache={self.folder / way}"
            environment |= {"MEASURE_PRELOAD": self.library, "PENUMBRA_OPTIONS": rewrite}
        if way == "asan":
            environment["ASAN_OPTIONS"] = "detect_leaks=0"
        if way == "valgrind":
            command = ["valgrind", "-q", *command]
        reading, writing = os.pipe()
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", f'exec "$@" 3>&{writing}', "sh", str(self.task.build_dir / MEASURE), *command],
                env=environment, pass_fds=[writing], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, text=True, errors="replace")
            os.close(writing)
            writing = -1
            words = os.read(reading, 200).split()
        finally:
            os.close(reading)
            if writing >= 0:
                os.close(writing)
        if done.returncode != 0 or len(words) != 4 or words[3] != b"0" or "BUG:" in done.stderr:
            raise registry.BenchError(f"{way}: {' '.join(command)[:120]}: {words} {done.stderr[-300:]}")
        return Cost((int(words[0]) + int(words[1])) / 1e6, int(words[2]))

    def rounds(self, row, ways, repeats):
        """{way: [Cost]}; ways: [(label, way, command)]. One more round warms up, unless nothing matters."""
        costs = {label: [] for label, _, _ in ways}
        for repeat in range(0 if self.task.effort == "moment" else -1, repeats):
            shift = repeat % len(ways)
            for label, way, command in ways[shift:] + ways[:shift]:
                if repeat < 0 and way == "valgrind":
                    continue
                cost = self.cost(way, command)
                if repeat < 0:
                    continue
                costs[label].append(cost)
                self.task.report.sample(self.task.name, row, label, 1, repeat, cost.seconds, "s")
                self.task.report.sample(self.task.name, row, label, 1, repeat, cost.peak_kib, "KiB")
        return costs

    def net(self, costs, label):
        """Seconds of each run without what the same way needs for nothing."""
        start = statistics.median(c.seconds for c in costs[label + " empty"])
        return [max(c.seconds - start, 1e-4) for c in costs[label]]

    def measure(self, row, executable, program, ways, scale, repeats):
        commands = []
        for way in ways:
            binary = executable[way] if isinstance(executable, dict) else executable
            commands.append((way, way, [binary, *program.arguments(scale)]))
            commands.append((way + " empty", way, [binary, *program.empty]))
        return self.rounds(row, commands, repeats)


def seconds(costs, label):
    return [c.seconds for c in costs[label]]


def peaks(costs, label):
    return [float(c.peak_kib) for c in costs[label]]


def measure_program(bench, program, executable, has_valgrind):
    """{column: [ratio of each round]} of an installed program."""
    effort, repeats = bench.task.effort, REPEATS[bench.task.effort]
    costs = bench.measure(program.name, executable, program, ["native", "full", "heap", "relocate"],
                          program.scales[effort], repeats)
    native = bench.net(costs, "native")

    def over(label):
        return [a / b for a, b in zip(bench.net(costs, label), native, strict=True)]

    found = {
        "full/native": over("full"), "heap/native": over("heap"), "relocate/native": over("relocate"),
        "full+start/native": [a / b for a, b in zip(seconds(costs, "full"), seconds(costs, "native"), strict=True)],
        "peak/native": [a / b for a, b in zip(peaks(costs, "full"), peaks(costs, "native"), strict=True)],
    }
    print(f"  {program.name}: native {statistics.median(native):.3f} s, start {start_ms(costs, 'native'):.1f} ms, "
          f"full {start_ms(costs, 'full'):.1f} ms; peak {statistics.median(peaks(costs, 'native')) / 1024:.0f} MiB, "
          f"full {statistics.median(peaks(costs, 'full')) / 1024:.0f} MiB", file=sys.stderr)
    if has_valgrind and effort != "moment":
        scale = program.scales["valgrind"]
        slow = bench.measure(program.name, executable, program, ["full", "valgrind"], scale, 1 if effort == "quick" else 3)
        found["full/valgrind"] = [a / b for a, b in zip(bench.net(slow, "full"), bench.net(slow, "valgrind"), strict=True)]
    return found


def start_ms(costs, label):
    return statistics.median(c.seconds for c in costs[label + " empty"]) * 1000


def measure_from_source(bench, program, built):
    costs = bench.measure(program.name + ".source", {"full": built["native"], "asan": built["asan"]}, program,
                          ["full", "asan"], program.scales[bench.task.effort], REPEATS[bench.task.effort])
    return [a / b for a, b in zip(bench.net(costs, "full"), bench.net(costs, "asan"), strict=True)]


def report(task, table):
    """table: {program: {column: ratios}}. Prints it with geometric means and judges the goals."""
    rows = []
    mean = {}
    for column in COLUMNS:
        have = [found[column] for found in table.values() if column in found]
        if have:
            mean[column] = [math.exp(statistics.fmean(map(math.log, one))) for one in zip(*have, strict=True)]
    for name, found in [*table.items(), ("geomean", mean)]:
        for column, ratios in found.items():
            task.report.ratio(task.name, name, column, figures.Spread(ratios))
        rows.append([name, *(figures.Spread(found[c]) if c in found else "-" for c in COLUMNS)])
    print(figures.table([task.name, *COLUMNS], rows))
    for column, (limit, single) in GOALS.items():
        if column not in mean or task.effort == "moment":
            continue
        value = figures.Spread(mean[column]).median
        print(f"  {'holds ' if value <= limit else 'missed'}  {column} in geometric mean: {value:.2f}, goal at most {limit}")
        if single:
            worst = max((n for n in table if column in table[n]), key=lambda n: figures.Spread(table[n][column]).median)
            value = figures.Spread(table[worst][column]).median
            print(f"  {'holds ' if value <= single else 'missed'}  {column} of {worst}: {value:.2f}, goal at most {single}")


def run(task):
    chosen = os.environ.get("BENCH_PROGRAMS", "").split()
    with tempfile.TemporaryDirectory(prefix="penumbra-bench.") as folder:
        bench = Bench(task, pathlib.Path(folder))
        known = [p for p in programs(bench.folder) if not chosen or p.name in chosen]
        installed = {p.name: shutil.which(p.executable, path=SYSTEM_PATH) for p in known}
        for program in known:
            if installed[program.name] is None:
                print(f"  {program.name} is not installed and left out")
        known = [p for p in known if installed[p.name]]
        if not known:
            raise registry.BenchError("none of the programs is installed")
        built = {} if task.effort == "moment" else sources.build_or_say(task.build_dir / "bench-sources")
        bench.prepare([*(installed[p.name] for p in known), *(kinds["native"] for kinds in built.values())])
        has_valgrind = shutil.which("valgrind") is not None
        if not has_valgrind:
            print("  valgrind is not installed and left out")
        table = {}
        for program in known:
            table[program.name] = measure_program(bench, program, installed[program.name], has_valgrind)
            if program.name in built:
                table[program.name]["full/asan"] = measure_from_source(bench, program, built[program.name])
        print(f"{task.name}: CPU time, {REPEATS[task.effort]} interleaved repeats, median (min..max)")
        report(task, table)
    return True


BENCHES = [registry.Bench("programs", "bzip2, xz, lua, sqlite, perl, python, cc1 beside native, Valgrind and ASan",
                          [LIBRARY, LAUNCHER, MEASURE], run)]
