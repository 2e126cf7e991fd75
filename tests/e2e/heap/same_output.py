#!/usr/bin/env python3
"""Runs a shell command with and without the preload library: same output, same status: same_output.py SO COMMAND

stderr must be the same too, so a report of any kind is a difference.
"""

import os
import subprocess
import sys

LIMIT_SECONDS = 300


def run(command, **extra):
    done = subprocess.run(["/bin/sh", "-c", command], env=dict(os.environ, MALLOC_PERTURB_="0", **extra),
                          capture_output=True, timeout=LIMIT_SECONDS)
    return done.returncode, done.stdout, done.stderr


def main():
    library, command = sys.argv[1:]
    plain = run(command)
    checked = run(command, LD_PRELOAD=library)
    for name, a, b in zip(("status", "stdout", "stderr"), plain, checked):
        if a != b:
            print(f"{name} differs: without the library\n{a}\nwith it\n{b}")
    if plain[0] != 0 or not plain[1]:
        print(f"the command itself is no test: {plain}")
        return 1
    return plain != checked


if __name__ == "__main__":
    sys.exit(main())
