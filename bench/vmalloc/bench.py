"""test_vmalloc over the region allocator without shadow, with early shadow and with lazy shadow, beside mmap.

Every allocator lives in a process of its own, which runs one test at a time on request (serve.h); the requests go
round robin over the allocators within each test of each repeat, beginning with another one each time, so that a
disturbance hits all alike. A ratio is taken between neighbours in time, and its median over the repeats is the figure.
The first repeat only warms up.

off, early and lazy run with retain=0 for the ratios (memory ruling 21). What retained memory gives is measured apart,
early against lazy with the default budget, in nanoseconds per pair of allocation and free.
"""

import dataclasses
import os
import subprocess

from support import figures, registry

# Name, and what is known of a run with L loops on C CPUs: pairs of allocation and free, and pages in all of them.
# None where the work is not pairs. Sizes are those of cases.h.
FULL_FIT_PAGES = 32 * 2**20 // 4096


def _full_fit(loops, cpus):
    pages = cpus.bit_length() * FULL_FIT_PAGES
    return 2 + 2 * pages + loops, 2 * (pages * 8 // 4096) + 2 * pages + loops


TESTS = {
    "fix_size_alloc_test": lambda loops, cpus: (loops, loops),
    "full_fit_alloc_test": _full_fit,
    "long_busy_list_alloc_test": lambda loops, cpus: (1 + 15000 + 2 * loops, 30 + 15000 + 101 * loops),
    "random_size_alloc_test": lambda loops, cpus: (loops, 50.5 * loops),
    "fix_align_alloc_test": lambda loops, cpus: (loops, 5 * loops),
    "random_size_align_alloc_test": lambda loops, cpus: (loops, 5.477 * loops),
    "align_shift_alloc_test": None,
    "pcpu_alloc_test": None,
    "kvfree_rcu_1_arg_vmalloc_test": lambda loops, cpus: (loops, loops),
    "kvfree_rcu_2_arg_vmalloc_test": lambda loops, cpus: (loops, loops),
    "vm_map_ram_test": None,
    "no_block_alloc_test": lambda loops, cpus: (loops, loops),
    "vrealloc_test": None,
}
NAMES = list(TESTS)
NO_MMAP = {"align_shift_alloc_test", "pcpu_alloc_test", "vm_map_ram_test", "vrealloc_test"}
DEFAULT_RETAIN = 32 * 2**20

# D. Axtens, kasan-dev and linux-mm, October 2019, the patch set that brought KASAN_VMALLOC: a VM with 2 CPUs, gcc
# inline checks. Columns: early/off, lazy/off, lazy/early; one CPU, then worker 0 of two.
KERNEL = {
    "fix_size_alloc_test": ((8.38, 13.54, 1.62), (7.18, 15.82, 2.20)),
    "full_fit_alloc_test": ((8.23, 9.72, 1.18), (5.26, 5.91, 1.12)),
    "long_busy_list_alloc_test": ((3.29, 5.81, 1.77), (3.46, 6.52, 1.88)),
    "random_size_alloc_test": ((3.16, 6.19, 1.96), (3.15, 8.45, 2.68)),
    "fix_align_alloc_test": ((6.22, 11.91, 1.92), (6.36, 18.43, 2.90)),
    "random_size_align_alloc_test": ((5.80, 10.74, 1.85), (5.38, 12.96, 2.41)),
    "align_shift_alloc_test": ((3.55, 22.35, 6.29), (5.09, 4.37, 0.86)),
    "pcpu_alloc_test": ((1.20, 1.38, 1.15), (0.83, 1.01, 1.22)),
    "total": ((4.18, 7.35, 1.76), (4.13, 8.98, 2.18)),
}

# Loops, repeats.
EFFORT = {"full": (10000, 10), "quick": (10000, 3), "moment": (20, 1)}


@dataclasses.dataclass(frozen=True)
class Subject:
    name: str
    program: str
    words: tuple

    def can(self, test):
        return self.name != "mmap" or test not in NO_MMAP


def _plain(name, retain=0):
    suffix = "+retain" if retain else ""
    return Subject(name + suffix, "bench/vmalloc/test_vmalloc", (f"allocator={name}", f"retain={retain}"))


OFF, EARLY, LAZY, MMAP = _plain("off"), _plain("early"), _plain("lazy"), _plain("mmap")
EARLY_RETAIN, LAZY_RETAIN = _plain("early", DEFAULT_RETAIN), _plain("lazy", DEFAULT_RETAIN)
EARLY_CHECKED = Subject("early-checked", "bench/vmalloc/test_vmalloc_checked", ("allocator=early",))
LAZY_CHECKED = Subject("lazy-checked", "bench/vmalloc/test_vmalloc_checked", ("allocator=lazy",))


class Server:
    """A process that runs tests of one subject on request."""

    def __init__(self, subject, build_dir):
        self.subject = subject
        self._process = subprocess.Popen(
            [str(build_dir / subject.program), *subject.words, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, bufsize=1)

    def measure(self, test, loops, workers):
        """Nanoseconds of one run, the mean over its workers."""
        try:
            self._process.stdin.write(f"{1 << NAMES.index(test)} {loops} {workers}\n")
            answer = self._process.stdout.readline().split()
        except BrokenPipeError:
            answer = []
        if not answer:
            raise registry.BenchError(f"{self.subject.name} died in {test} with status {self._process.wait()}")
        expected = {"passed", "xfailed"} if test in ("align_shift_alloc_test", "no_block_alloc_test") else {"passed"}
        if answer[-1] not in expected:
            raise registry.BenchError(f"{test} with {self.subject.name} and {workers} workers: {' '.join(answer)}")
        times = [int(ns) for ns in answer[:-1]]
        return sum(times) / len(times)

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def measure(task, subjects, workers, loops, repeats):
    """{(subject, test): [ns of each repeat]}, tests in order, subjects interleaved."""
    times = {(subject, test): [] for subject in subjects for test in NAMES if subject.can(test)}
    servers = []
    try:
        servers.extend(Server(subject, task.build_dir) for subject in subjects)
        first = 0 if task.effort == "moment" else -1  # the one before the first warms up
        for repeat in range(first, repeats):
            for test in NAMES:
                shift = (repeat + NAMES.index(test)) % len(servers)
                for server in servers[shift:] + servers[:shift]:
                    if not server.subject.can(test):
                        continue
                    ns = server.measure(test, loops, workers)
                    if repeat >= 0:
                        times[server.subject, test].append(ns)
                        task.report.sample(task.name, test, server.subject.name, workers, repeat, ns, "ns")
    finally:
        for server in servers:
            server.close()
    return times


def totals(times, subject, tests):
    """Nanoseconds of each repeat, summed over the tests."""
    return [sum(repeat) for repeat in zip(*(times[subject, test] for test in tests), strict=True)]


def microseconds(samples):
    return f"{figures.Spread(samples).median / 1000:.0f}"


def ratio_table(task, times, workers, columns, subjects):
    """Prints the table of one worker count and reports its RATIO lines. columns: [(name, over, under)]."""
    kernel_side = 0 if workers == 1 else 1
    rows = []
    spreads = {}
    for row in NAMES + ["total"]:
        cells = [row]
        for subject in subjects:
            tests = [test for test in NAMES if subject.can(test)]
            if row == "total":
                cells.append(microseconds(totals(times, subject, tests)))
            else:
                cells.append(microseconds(times[subject, row]) if subject.can(row) else "-")
        for name, over, under in columns:
            tests = [test for test in NAMES if over.can(test) and under.can(test)]
            if row == "total":
                spread = figures.ratios(totals(times, over, tests), totals(times, under, tests))
            elif row in tests:
                spread = figures.ratios(times[over, row], times[under, row])
            else:
                cells.append("-")
                continue
            spreads[row, name] = spread
            cells.append(spread)
            task.report.ratio(task.name, row, f"{name}@{workers}", spread)
        kernel = KERNEL.get(row)
        cells.append(" ".join(f"{ratio:.2f}" for ratio in kernel[kernel_side]) if kernel else "-")
        rows.append(cells)
    print(figures.table([f"{workers} worker{'s' * (workers > 1)}"] + [f"{subject.name} us" for subject in subjects] +
                        [name for name, _, _ in columns] + ["kernel: early/off lazy/off lazy/early"], rows))
    return spreads


def judge(what, value, limit, below=False):
    good = value < limit if below else value <= limit
    print(f"  {'holds ' if good else 'missed'}  {what}: {value:.2f}, goal {'below' if below else 'at most'} {limit}")


def worker_counts():
    cpus = os.cpu_count()
    return [1] if cpus == 1 else [1, cpus]


def run_plain(task):
    loops, repeats = EFFORT[task.effort]
    print(f"{task.name}: {loops} loops, {repeats} interleaved repeats, microseconds of a repeat (median), "
          f"ratios median (min..max)\n")
    subjects = [OFF, EARLY, LAZY, MMAP, EARLY_RETAIN, LAZY_RETAIN]
    columns = [("early/off", EARLY, OFF), ("lazy/early", LAZY, EARLY), ("lazy/off", LAZY, OFF),
               ("off/mmap", OFF, MMAP)]
    for workers in worker_counts():
        times = measure(task, subjects, workers, loops, repeats)
        spreads = ratio_table(task, times, workers, columns, subjects)
        limit = 1.10 if workers == 1 else 1.15
        judge(f"lazy/early in total on {workers}", spreads["total", "lazy/early"].median, limit)
        # Memory ruling 21: a test under 10 ms a repeat is too short to be judged singly.
        singles = [test for test in NAMES if figures.Spread(times[LAZY, test]).median >= 10e6]
        if singles:
            worst = max(singles, key=lambda test: spreads[test, "lazy/early"].median)
            judge(f"lazy/early of the worst single test, {worst}", spreads[worst, "lazy/early"].median, 1.5)
        judge(f"off/mmap in total on {workers}", spreads["total", "off/mmap"].median, 0.5)
        print()
        if workers == 1:
            retention(task, times, loops)
    return True


def retention(task, times, loops):
    """What an allocation costs that finds memory kept from an earlier one; one worker."""
    rows = []
    for test in NAMES:
        if TESTS[test] is None:
            continue
        pairs, pages = TESTS[test](loops, os.cpu_count())
        extra = figures.Spread((lazy - early) / pairs for lazy, early in
                               zip(times[LAZY_RETAIN, test], times[EARLY_RETAIN, test], strict=True))
        limit = 60 + 10 * pages / pairs
        spread = figures.ratios(times[LAZY_RETAIN, test], times[MMAP, test])
        per_pair = [f"{figures.Spread(times[subject, test]).median / pairs:.0f}"
                    for subject in (EARLY_RETAIN, LAZY_RETAIN, MMAP)]
        rows.append([test, *per_pair, f"{extra.median:.0f} ({extra.min:.0f}..{extra.max:.0f})", f"{limit:.0f}",
                     "holds" if extra.median <= limit else "missed", spread])
        task.report.value(task.name, test, "retained_extra_ns", extra.median, "ns")
        task.report.ratio(task.name, test, "retained/mmap", spread)
    tests = [test for test in NAMES if MMAP.can(test)]
    total = figures.ratios(totals(times, LAZY_RETAIN, tests), totals(times, MMAP, tests))
    rows.append(["total", "", "", "", "", "", "", total])
    task.report.ratio(task.name, "total", "retained/mmap", total)
    print(figures.table([f"retain={DEFAULT_RETAIN >> 20}m, ns a pair", "early", "lazy", "mmap", "lazy - early", "goal",
                         "", "lazy/mmap"], rows))
    judge("lazy with retention over mmap in total", total.median, 0.25)
    print()


def run_checked(task):
    loops, repeats = EFFORT[task.effort]
    print(f"{task.name}: allocator and bodies compiled with -fsanitize=kernel-address, off without; {loops} loops, "
          f"{repeats} interleaved repeats\n")
    subjects = [OFF, EARLY_CHECKED, LAZY_CHECKED]
    columns = [("early/off", EARLY_CHECKED, OFF), ("lazy/early", LAZY_CHECKED, EARLY_CHECKED),
               ("lazy/off", LAZY_CHECKED, OFF)]
    for workers in worker_counts():
        times = measure(task, subjects, workers, loops, repeats)
        spreads = ratio_table(task, times, workers, columns, subjects)
        judge(f"lazy/off in total on {workers}", spreads["total", "lazy/off"].median, 7.35 if workers == 1 else 8.98,
              below=True)
        print()
    return True


BENCHES = [
    registry.Bench("vmalloc", "the kernel's test_vmalloc: off, early, lazy, mmap", ["bench/vmalloc/test_vmalloc"],
                   run_plain),
    registry.Bench("vmalloc-checked", "the same with allocator and bodies compiled with checks",
                   ["bench/vmalloc/test_vmalloc", "bench/vmalloc/test_vmalloc_checked"], run_checked),
]
