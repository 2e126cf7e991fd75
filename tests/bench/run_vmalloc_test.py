"""bench/run vmalloc for a moment: that it runs, and that every figure the goals are read from is there in its form."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = """fix_size_alloc_test full_fit_alloc_test long_busy_list_alloc_test random_size_alloc_test fix_align_alloc_test
           random_size_align_alloc_test align_shift_alloc_test pcpu_alloc_test kvfree_rcu_1_arg_vmalloc_test
           kvfree_rcu_2_arg_vmalloc_test vm_map_ram_test no_block_alloc_test vrealloc_test""".split()
NO_MMAP = {"align_shift_alloc_test", "pcpu_alloc_test", "vm_map_ram_test", "vrealloc_test"}
NO_PAIRS = NO_MMAP
NUMBER = r"-?\d+(\.\d+)?(e[+-]\d+)?"
RATIO = re.compile(rf"RATIO \S+ (\S+) (\S+) {NUMBER} {NUMBER} {NUMBER}$")
VALUE = re.compile(rf"VALUE \S+ (\S+) (\S+) {NUMBER} ns$")


def main():
    build_dir, bench = sys.argv[1:]
    done = subprocess.run([str(ROOT / "bench" / "run"), bench, "--moment", "--build-dir", build_dir],
                          stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, f"status {done.returncode}"
    lines = done.stdout.splitlines()
    found = {match.groups()[:2] for match in map(RATIO.match, lines) if match}
    found |= {match.groups()[:2] for match in map(VALUE.match, lines) if match}
    workers = sorted({1, os.cpu_count()})
    expected = set()
    for count in workers:
        for row in TESTS + ["total"]:
            columns = ["early/off", "lazy/early", "lazy/off"]
            if bench == "vmalloc" and row not in NO_MMAP:
                columns.append("off/mmap")
            expected |= {(row, f"{column}@{count}") for column in columns}
    if bench == "vmalloc":
        expected |= {(row, "retained_extra_ns") for row in TESTS if row not in NO_PAIRS}
        expected |= {(row, "retained/mmap") for row in TESTS + ["total"] if row not in NO_MMAP}
    assert found == expected, f"missing {sorted(expected - found)}, unexpected {sorted(found - expected)}"


if __name__ == "__main__":
    main()
