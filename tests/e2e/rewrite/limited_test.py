#!/usr/bin/env python3
"""`ulimit -v 2000000; penumbra PROGRAM`, where the direct shadow map has no room: what rewritten code would find is found all the
same, as where shadow=paged asks for it, and programs behave as they do alone: limited_test.py PENUMBRA PROGRAM"""

import pathlib
import resource
import subprocess
import sys
import tempfile
import unittest

PENUMBRA, PROGRAM = (str(pathlib.Path(a).resolve()) for a in sys.argv[1:])
LIMIT = 2_000_000 * 1024


def limit_address_space():
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))


class Limited(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.home = tempfile.TemporaryDirectory(prefix="penumbra-home.")

    @classmethod
    def tearDownClass(cls):
        cls.home.cleanup()

    def run_it(self, *words, is_limited=True):
        return subprocess.run([PENUMBRA, *words], capture_output=True, text=True, check=False, timeout=120,
                              preexec_fn=limit_address_space if is_limited else None,
                              env={"HOME": self.home.name, "PATH": "/usr/bin:/bin"})

    def expect_bug(self, done, which):
        self.assertIn(f"BUG: KASAN: slab-out-of-bounds in {which}", done.stderr)
        self.assertEqual((done.stdout, done.returncode), ("end\n", 99))

    def test_rewritten_code_finds_its_bugs_under_the_limit(self):
        for which in ("store", "load"):
            self.expect_bug(self.run_it("rewrite=1", "libc=0", PROGRAM, which), which)

    def test_shadow_paged_does_the_same_without_a_limit(self):
        self.expect_bug(self.run_it("rewrite=1", "libc=0", "shadow=paged", PROGRAM, "store", is_limited=False), "store")

    def test_the_launcher_prepares_what_the_process_will_want(self):
        done = self.run_it("verbose=1", PROGRAM, "store")
        self.assertRegex(done.stderr, r"rewritten [1-9]\d* of \d+ modules; without a module file 0, refused 0")

    def test_a_program_without_a_bug_is_silent(self):
        done = self.run_it("sh", "-c", "seq 1 3000 | sort -n | tail -1")
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("3000\n", "", 0))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
