#!/usr/bin/env python3
"""Code that runs while the program's vector registers are live names none of them: general_registers.py ARCHIVE..."""

import re
import subprocess
import sys

VECTOR = re.compile(r"%[xyz]mm\d|%st\b|%mm\d")


def main():
    bad = 0
    seen = 0
    for archive in sys.argv[1:]:
        listing = subprocess.run(["objdump", "-d", archive], capture_output=True, text=True, check=True).stdout
        for line in listing.splitlines():
            seen += "\t" in line
            if VECTOR.search(line):
                print(f"{archive}: {line.strip()}")
                bad += 1
    return 1 if bad or seen < 100 else 0


sys.exit(main())
