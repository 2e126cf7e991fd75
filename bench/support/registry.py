"""How a benchmark is found and what it gets.

bench/<folder>/bench.py defines BENCHES, a list of Bench. The simplest, around a Google Benchmark program:

    from support import google_benchmark
    BENCHES = [google_benchmark.bench("stacks", "unwinder against libunwind", "bench/stacks/unwind_bench")]
"""

import dataclasses
import importlib.util
import os
import pathlib
from typing import Callable


class BenchError(Exception):
    """A benchmark cannot go on; the message is one line for the user."""


@dataclasses.dataclass
class Task:
    name: str  # of the benchmark, as it stands in the figures
    build_dir: pathlib.Path
    effort: str  # full, quick (under two minutes) or moment (a test that it works; figures mean nothing)
    report: "figures.Report"  # where figures and single measurements go


@dataclasses.dataclass
class Bench:
    name: str
    description: str
    targets: list[str]  # what ninja builds for it
    run: Callable[[Task], bool]  # False: something failed that should not


def plain_environment():
    """That of whoever runs the benchmarks, without what preloads, or steers an allocator, Penumbra or ASan."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "MALLOC_", "PENUMBRA_", "ASAN_"))}


def discover(folder):
    benches = {}
    for path in sorted(folder.glob("*/bench.py")):
        spec = importlib.util.spec_from_file_location(f"bench_{path.parent.name}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for bench in module.BENCHES:
            if bench.name in benches:
                raise BenchError(f"two benchmarks are called {bench.name}")
            benches[bench.name] = bench
    return benches
