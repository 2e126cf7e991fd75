#!/usr/bin/env python3
"""Builds and tests the rows of the test matrix, and counts: run_rows.py ROOT [--full] [--only ROW]

A row is a build folder: a compiler, options, and the suites that run in it. Its results are read from meson's
testlog.json. A test program of GoogleTest counts each of its cases; a program that prints TAP (`ok 1 - ...`) counts
each line; any other test is one. A program that dies, times out or exits badly without having told of a failed case
counts one failure more. A row that does not build is one failure.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import time


@dataclasses.dataclass
class Row:
    name: str
    compiler: tuple
    options: list
    suites: list
    environment: dict = dataclasses.field(default_factory=dict)
    folder: str = ""  # build folder, without "build-"; the row's name where empty
    programs: dict = dataclasses.field(default_factory=dict)  # only these tests, each with the target it needs
    repeat: int = 1  # how often each program runs


GCC = ("gcc", "g++")
CLANG = ("clang", "clang++")

ROWS = [
    Row("gcc", GCC, ["-Dvalidate=every_op"], ["unit", "e2e", "hygiene"]),
    # Apart, because a benchmark's thousands of operations with a validation after each take minutes.
    Row("smoke", GCC, ["-Dvalidate=off", "-Dtests=false"], ["bench-smoke"]),
    Row("clang", CLANG, ["-Dvalidate=off", "-Dbenches=false"], ["unit"]),
]
FULL_ROWS = [
    Row("off", GCC, ["-Dvalidate=off"], ["unit", "e2e", "bench-smoke"]),
    # Sources broken on purpose, one property each: the tests must notice.
    Row("mutations", GCC, ["-Dvalidate=off"], ["mutations"], folder="off"),
    # Half an hour of mixed work with every invariant checked, in the folder of the first row.
    Row("half-hour", GCC, ["-Dvalidate=every_op"], ["long"], {"PENUMBRA_SOAK_SECONDS": "1800"}, "gcc"),
    # Every program ten times, its cases each time in another order. Not GTEST_REPEAT: some claims are about what the
    # first use in a process does.
    Row("soak", GCC, ["-Dvalidate=off"], ["unit"], {"GTEST_SHUFFLE": "1"}, "off", repeat=10),
    Row("ubsan", GCC, ["-Dvalidate=every_op", "-Db_sanitize=undefined", "-Dbenches=false"], ["unit"],
        {"UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}),
    # The direct map lies where TSan has its own shadow, so only tests that reserve none can run.
    Row("tsan", GCC, ["-Dvalidate=off", "-Db_sanitize=thread", "-Dbenches=false"], ["unit"],
        {"TSAN_OPTIONS": "exitcode=66"},
        programs={"base": "tests/base/base_test", "process": "tests/process/process_test",
                  "launcher": "tests/launcher/launcher_test", "depot_tsan": "tests/stacks/depot_tsan_test",
                  "region_tsan": "tests/region/region_tsan_stress"}),
]


@dataclasses.dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


GTEST_CASE = re.compile(r"^\[( +OK|  FAILED|  SKIPPED) +\] [^ ,]+\.[^ ,]+(?:, where .*)? \(\d+ ms\)$", re.MULTILINE)
TAP_CASE = re.compile(r"^(ok|not ok)\b(.*)$", re.MULTILINE)


def count_test(result, stdout):
    """The Count of one entry of testlog.json: `result` is meson's word, `stdout` what the program printed."""
    count = Count()
    if "[==========] Running" in stdout:
        for case in GTEST_CASE.findall(stdout):
            word = case.strip()
            count.add(Count(word == "OK", word == "FAILED", word == "SKIPPED"))
    elif re.search(r"^1\.\.\d+", stdout, re.MULTILINE):
        for word, rest in TAP_CASE.findall(stdout):
            skipped = "# SKIP" in rest.upper()
            count.add(Count(word == "ok" and not skipped, word == "not ok", skipped))
    elif result == "SKIP":
        return Count(skipped=1)
    elif result in ("OK", "EXPECTEDFAIL"):
        return Count(passed=1)
    if result not in ("OK", "EXPECTEDFAIL", "SKIP") and count.failed == 0:
        count.failed += 1
    if count == Count():
        count.failed += 1  # a test program without a test
    return count


def say(text):
    print(text, file=sys.stderr, flush=True)


def run_logged(command, log, environment):
    with open(log, "a", encoding="utf-8") as file:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                              env=environment, check=False).returncode == 0


def tail(log, lines=40):
    return "".join(open(log, encoding="utf-8", errors="replace").readlines()[-lines:])


def build(root, row, folder, environment):
    """None where it built, else what to show."""
    log = pathlib.Path(f"{folder}.log")
    log.write_text("")
    if not (folder / "build.ninja").exists():
        say(f"{row.name}: configuring {folder.name}")
        if not run_logged(["meson", "setup", str(folder), str(root), *row.options], log, environment):
            return tail(log)
    elif not run_logged(["meson", "configure", str(folder), *row.options], log, environment):
        return tail(log)
    say(f"{row.name}: building")
    command = ["ninja", "-C", str(folder), *row.programs.values()]
    return None if run_logged(command, log, environment) else tail(log)


def essence(output):
    """What a failed test printed, without the words about cases that went well; its end, where that is long."""
    lines = [line for line in output.splitlines() if not re.match(r"\[( RUN |       OK|------)|ok \d", line)]
    return "\n".join(lines[-80:])


def known_suites(folder, environment):
    listed = subprocess.run(["meson", "introspect", "--tests", str(folder)], capture_output=True, text=True,
                            env=environment, check=True)
    return {suite.split(":")[-1] for test in json.loads(listed.stdout) for suite in test["suite"]}


def run_tests(row, folder, environment):
    say(f"{row.name}: testing")
    command = ["meson", "test", "-C", str(folder), "--no-rebuild", "--timeout-multiplier", "4", "--print-errorlogs"]
    suites = [suite for suite in row.suites if suite in known_suites(folder, environment)]
    if not suites:
        return Count()
    for suite in suites:
        command += ["--suite", suite]
    command += row.programs.keys()
    if row.repeat > 1:
        command.append(f"--repeat={row.repeat}")
    log = pathlib.Path(f"{folder}.log")
    results = folder / "meson-logs" / "testlog.json"
    results.unlink(missing_ok=True)
    run_logged(command, log, environment)
    count = Count()
    if not results.exists():
        say(tail(log))
        return Count(failed=1)
    for line in results.read_text(encoding="utf-8", errors="replace").splitlines():
        test = json.loads(line)
        one = count_test(test["result"], test.get("stdout", ""))
        if one.failed:
            say(f"{row.name}: FAILED {test['name']} ({test['result']}, {one})")
            say(essence(test.get("stdout", "") + test.get("stderr", "")))
        count.add(one)
    return count


def run_row(root, row):
    started = time.monotonic()
    environment = dict(os.environ, CC=row.compiler[0], CXX=row.compiler[1], MALLOC_PERTURB_="0", **row.environment)
    folder = root / f"build-{row.folder or row.name}"
    environment["XDG_CACHE_HOME"] = str(folder / "cache")  # module files of what is tested
    trouble = build(root, row, folder, environment)
    if trouble is not None:
        say(trouble)
        say(f"{row.name}: FAILED to build")
        count = Count(failed=1)
    else:
        count = run_tests(row, folder, environment)
    say(f"{row.name}: {count} in {time.monotonic() - started:.0f} s")
    return count


def main():
    parser = argparse.ArgumentParser(prog="tests/run", description="Installs, builds and runs every test.")
    parser.add_argument("root", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--full", action="store_true", help="also UBSan, TSan, validate=off and the long soaks")
    parser.add_argument("--only", metavar="ROW", action="append",
                        help="only this row: " + ", ".join(row.name for row in ROWS + FULL_ROWS))
    options = parser.parse_args()
    rows = ROWS + (FULL_ROWS if options.full or options.only else [])
    if options.only:
        rows = [row for row in rows if row.name in options.only]
    total = Count()
    for row in rows:
        total.add(run_row(options.root, row))
    if total.passed == 0:
        total.failed = max(total.failed, 1)  # nothing ran: that is no success
    print(total)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
