#!/usr/bin/env python3
"""`ulimit -v 2000000; penumbra PROGRAM`, where the direct shadow map has no room: what rewritten code would find is found all the
same, as where shadow=paged asks for it, and programs behave as they do alone: limited_test.py PENUMBRA PROGRAM"""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True

from rewriting import WithHome  # noqa: E402  (no bytecode beside the sources)

PROGRAM = str(pathlib.Path(sys.argv[2]).resolve())


class Limited(WithHome):
    def run_it(self, *words, is_limited=True):
        return self.launch(*words, is_limited=is_limited)

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
