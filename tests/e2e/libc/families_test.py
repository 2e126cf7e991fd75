#!/usr/bin/env python3
"""Bugs through every family of libc calls, in a stripped, fortified program: families_test.py SO PROGRAM

Each bug must be reported once, with the call's name, its class and its stacks; the program goes on, and its status
becomes 99. With libc=0 it must run silently.
"""

import os
import re
import subprocess
import sys

READS = ["memmove", "memcmp", "memchr", "strlen", "strcmp", "strchr", "strdup", "strtok", "wcslen", "write", "send",
         "fwrite", "fputs"]
WRITES = ["memcpy", "memset", "strcpy", "strncpy", "strcat", "wmemcpy", "wcscpy", "read", "pread", "readv", "recv",
          "recvmsg", "fread", "fgets", "snprintf", "sprintf", "stat", "getcwd", "poll"]
# Freed: strcat looks for the end of what it appends to, first.
READS_FIRST = {"strcat"}


def run(library, program, *arguments, options=""):
    # rewrite=0: where libc's own code is checked, that finds most of this, deeper inside (tests/e2e/rewrite).
    environment = dict(os.environ, LD_PRELOAD=library, PENUMBRA_OPTIONS=f"rewrite=0:{options}", MALLOC_PERTURB_="0")
    return subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, errors="replace",
                          timeout=120)


def complaints(done, call, word, verb):
    if done.stdout != "went on\n":
        yield f"the program did not go on: {done.stdout!r}"
    if done.returncode != 99:
        yield f"status {done.returncode}"
    reports = re.findall(r"^BUG: KASAN: (\S+) in ", done.stderr, re.MULTILINE)
    if reports != [word]:
        yield f"reports {reports}, not [{word!r}]"
    calls = re.findall(r"^Checked call: (\w+)\(\)", done.stderr, re.MULTILINE)
    if len(calls) != 1 or not re.fullmatch(call, calls[0]):
        yield f"calls {calls}, not {call}"
    if not re.search(rf"^{verb} of size \d+ at addr", done.stderr, re.MULTILINE):
        yield f"it is not a {verb}"
    if "slab" in word and "Allocated by task" not in done.stderr:
        yield "no allocation stack"
    if word == "slab-use-after-free" and "Freed by task" not in done.stderr:
        yield "no stack of the free"


def cases():
    """Arguments, the call by a regular expression, the class, the verb."""
    for family in READS + WRITES:
        verb = "Write" if family in WRITES else "Read"
        call = rf"(__)?{family}(64)?(_chk)?"
        yield (family, "over"), call, "slab-out-of-bounds", verb
        yield (family, "freed"), call, "slab-use-after-free", "Read" if family in READS_FIRST else verb
    yield ("fortified", "over"), "__memcpy_chk", "slab-out-of-bounds", "Write"
    yield ("fortified", "freed"), "__memcpy_chk", "slab-use-after-free", "Write"
    yield ("overlap",), "__memcpy_chk", "memcpy-param-overlap", "Write"


def main():
    library, program = sys.argv[1:]
    failures = 0
    for arguments, call, word, verb in cases():
        done = run(library, program, *arguments)
        for line in complaints(done, call, word, verb):
            failures += 1
            print(f"FAIL {' '.join(arguments)}: {line}\n{done.stderr[:1500]}")
    for arguments, options in ((("memcpy",), "libc=0"), (("overlap",), "overlap=0")):
        done = run(library, program, *arguments, options=options)
        if done.stderr or done.returncode != 0:
            failures += 1
            print(f"FAIL {options}: {done}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
