#!/usr/bin/env python3
"""penumbra bisect finds the function that a program cannot bear to have rewritten, and says so in one line of an optout file, with which
the program behaves: bisect_test.py PENUMBRA PROGRAM"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

PENUMBRA, PROGRAM = (str(pathlib.Path(a).resolve()) for a in sys.argv[1:])
NAME = pathlib.Path(PROGRAM).name


class Bisect(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.TemporaryDirectory(prefix="penumbra-home.")
        self.addCleanup(self.home.cleanup)

    def run_it(self, *words):
        return subprocess.run([PENUMBRA, *words], capture_output=True, text=True, check=False, timeout=300, stdin=subprocess.DEVNULL,
                              env={"HOME": self.home.name, "PATH": "/usr/bin:/bin", "TMPDIR": self.home.name})

    def test_the_function_is_found_and_its_line_helps(self):
        self.assertEqual(self.run_it("rewrite=1", PROGRAM).stdout, "12 changed\n")
        found = self.run_it("bisect", PROGRAM)
        self.assertEqual((found.stdout, found.returncode), (f"{NAME} victim\n", 0), found.stderr)
        optout = pathlib.Path(self.home.name) / "optout"
        optout.write_text(found.stdout)
        self.assertEqual(self.run_it("rewrite=1", f"optout={optout}", PROGRAM).stdout, "12 as it was\n")
        self.assertEqual(sorted(p.name for p in pathlib.Path(self.home.name).iterdir()), [".cache", "optout"], "nothing is left behind")

    def test_a_program_that_behaves_is_told_so(self):
        found = self.run_it("bisect", PROGRAM, "quiet")
        self.assertEqual((found.stdout, found.returncode), ("", 1))
        self.assertIn("does the same with every function rewritten", found.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
