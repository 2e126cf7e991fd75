#!/usr/bin/env python3
"""Every C and C++ file is formatted as .clang-format of its folder says: formatting.py ROOT

Debian 12's clang-format 14 decides; another version formats some things otherwise, so it is asked by its name.
"""

import pathlib
import subprocess
import sys

FOLDERS = ["runtime", "allocator", "shadow", "instrument", "tests", "bench"]
TOOL = "clang-format-14"


def main():
    root = pathlib.Path(sys.argv[1])
    files = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in (".cc", ".h", ".c"))
    assert len(files) > 300, f"only {len(files)} files below {root}"
    result = subprocess.run([TOOL, "--dry-run", "-Werror", *map(str, files)], capture_output=True, text=True, check=False)
    wrong = sorted({line.split(":")[0] for line in result.stderr.splitlines() if "[-Wclang-format-violations]" in line})
    for path in wrong:
        print(f"{path}: run {TOOL} -i on it")
    return 1 if wrong or result.returncode != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
