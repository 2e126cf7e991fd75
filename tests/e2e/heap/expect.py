#!/usr/bin/env python3
"""Runs one program under the preload library and holds it to what its source says: expect.py SO SOURCE PROGRAM

In the source, comment lines that begin with `// EXPECT:` are regular expressions that must be found in stderr, in
this order; `// NEVER:` must not be found at all; `// STDOUT:` is a line of stdout, all of them in order; `// EXIT:` is
the exit status (0 if there is none, -N for a signal); `// OPTIONS:` goes to PENUMBRA_OPTIONS. A source without
EXPECT expects an empty stderr. With PENUMBRA_TEST_SHADOW=paged the same must happen on the paged shadow map.
"""

import os
import re
import subprocess
import sys

LIMIT_SECONDS = 120


def wishes(source, key):
    return [line.split(":", 1)[1].strip() for line in open(source) if line.startswith(f"// {key}:")]


def complaints(library, source, program):
    environment = dict(os.environ, LD_PRELOAD=library, MALLOC_PERTURB_="0",
                       PENUMBRA_OPTIONS=":".join(
                           ["shadow=" + os.environ.get("PENUMBRA_TEST_SHADOW", "direct")] + wishes(source, "OPTIONS")))
    run = subprocess.run(program, env=environment, capture_output=True, text=True, errors="replace",
                         timeout=LIMIT_SECONDS)
    expected = wishes(source, "EXPECT")
    at = 0
    for pattern in expected:
        found = re.compile(pattern, re.MULTILINE).search(run.stderr, at)
        if found is None:
            yield f"not in stderr (from byte {at}): {pattern}"
            break
        at = found.end()
    if not expected and run.stderr:
        yield "stderr should be empty"
    for pattern in wishes(source, "NEVER"):
        if re.search(pattern, run.stderr, re.MULTILINE):
            yield f"in stderr: {pattern}"
    wanted = wishes(source, "STDOUT")
    if run.stdout.splitlines() != wanted:
        yield f"stdout {run.stdout.splitlines()} instead of {wanted}"
    status = int((wishes(source, "EXIT") or ["0"])[0])
    if run.returncode != status:
        yield f"exit status {run.returncode} instead of {status}"
    return run


def main():
    library, source, *program = sys.argv[1:]
    found = complaints(library, source, program)
    lines = []
    while True:
        try:
            lines.append(next(found))
        except StopIteration as stop:
            run = stop.value
            break
    for line in lines:
        print("FAIL:", line)
    if lines:
        print("--- stderr\n" + run.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
