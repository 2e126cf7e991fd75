#!/usr/bin/env python3
"""Explores every interleaving of the model of translations with spin: model_test.py MODEL

The model as it is must be right, explored to the end; with the order of flush and free swapped, or without the second
look at the generation, the explorer must find a stale translation in use. Without a preemption between translating and
reading it cannot find the latter, which shows that the model has one. Prints TAP.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# What is claimed, what is defined away, whether a stale use is found.
CASES = [
    ("no thread uses a stale translation", [], False),
    ("free before flush is found", ["FREE_FIRST"], True),
    ("readers that look once are found", ["READ_ONCE"], True),
    ("it is the preemption between translating and reading that finds them", ["READ_ONCE", "UNINTERRUPTED"], False),
]


def explore(model, defines):
    """(a stale use was found, the whole space was seen)"""
    with tempfile.TemporaryDirectory(prefix="penumbra-model-") as folder:
        run = lambda *command: subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
        run("spin", *(f"-D{name}" for name in defines), "-a", str(model))
        run("gcc", "-O1", "-w", "-DSAFETY", "-DMEMLIM=1500", "-o", "pan", "pan.c")
        said = run("./pan", "-m100000")
    errors = int(re.search(r"errors: (\d+)", said)[1])
    whole = "Search not completed" not in said and "max search depth too small" not in said
    return errors != 0 and "assertion violated" in said, whole


def main():
    model = pathlib.Path(sys.argv[1]).resolve()
    if shutil.which("spin") is None:
        print("1..0 # SKIP spin is not installed")
        return 0
    print(f"1..{len(CASES)}")
    failed = 0
    for number, (claim, defines, expected) in enumerate(CASES, 1):
        found, whole = explore(model, defines)
        good = found == expected and (expected or whole)
        failed += not good
        print(f"{'ok' if good else 'not ok'} {number} - {claim}")
        if not good:
            print(f"# found: {found}, explored to the end: {whole}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
