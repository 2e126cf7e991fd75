#!/usr/bin/env python3
"""Hazards of moving code: run_cases.py PENUMBRA [CASE...]

Each <hazard>.s here is assembled, and its function f shown beside its rewritten copy (penumbra rewrite --disassemble). A case
says in comments what must stand there: `# then: REGEX` in this order, `# never: REGEX` nowhere. Registers that checks
choose are written as (?P<s>\\w+) and (?P=s), so that a better choice breaks no case. Lines are matched with single spaces;
a line's right half follows `| `.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PENUMBRA = str(pathlib.Path(sys.argv[1]).resolve())
HERE = pathlib.Path(__file__).resolve().parent
NAMES = sys.argv[2:] or sorted(p.stem for p in HERE.glob("*.s"))


def listing(source, folder):
    module = pathlib.Path(folder) / (source.stem + ".so")
    subprocess.run(["gcc", "-shared", "-nostdlib", "-o", module, source], check=True)
    done = subprocess.run([PENUMBRA, "rewrite", "--disassemble", "f", module], capture_output=True, text=True, check=True)
    return re.sub(r"[ \t]+", " ", done.stdout)


class Cases(unittest.TestCase):
    def check(self, name):
        source = HERE / (name + ".s")
        with tempfile.TemporaryDirectory(prefix="penumbra-case.") as folder:
            text = listing(source, folder)
        lines = source.read_text().splitlines()
        wanted = [line.split("then:", 1)[1].strip() for line in lines if line.startswith("# then:")]
        banned = [line.split("never:", 1)[1].strip() for line in lines if line.startswith("# never:")]
        self.assertTrue(wanted, "a case that expects nothing proves nothing")
        # Groups named in one line may be named again in a later one: the whole is one expression.
        at = 0
        for n in range(1, len(wanted) + 1):
            self.assertRegex(text, re.compile(".*?".join(wanted[:n]), re.DOTALL), f"up to: {wanted[n - 1]}\n{text}")
        for line in banned:
            self.assertNotRegex(text, line, text)


def add(name):
    setattr(Cases, "test_" + name, lambda self: self.check(name))


for case in NAMES:
    add(case)

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
