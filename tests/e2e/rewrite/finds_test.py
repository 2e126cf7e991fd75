#!/usr/bin/env python3
"""Every seeded bug is found by the checks in rewritten code, in the function that has it, and the program goes on:
finds_test.py PENUMBRA LIBRARY PROGRAM...

With PENUMBRA_TEST_SHADOW=paged the same is found where the direct map has no room, by checks that call out."""

import os
import pathlib
import re
import sys
import unittest

sys.dont_write_bytecode = True

from rewriting import WithModules  # noqa: E402  (no bytecode beside the sources)

PROGRAMS = [str(pathlib.Path(a).resolve()) for a in sys.argv[3:]]
IS_PAGED = os.environ.get("PENUMBRA_TEST_SHADOW") == "paged"

# number: class, access, function
BUGS = {
    0: ("slab-out-of-bounds", "Write of size 1", "store_byte"), 1: ("slab-out-of-bounds", "Read of size 1", "load_byte"),
    2: ("slab-out-of-bounds", "Read of size", "sum_ints"), 3: ("slab-out-of-bounds", "Write of size", "store_four"),
    4: ("slab-out-of-bounds", "Read of size 2", "load_before"), 5: ("slab-use-after-free", "Read of size 1", "load_freed"),
    6: ("slab-out-of-bounds", "Write of size 16", "store_vector"),
    7: ("slab-out-of-bounds", "Write of size 8", "store_straddling"),
    8: ("slab-out-of-bounds", "Write of size 30", "rep_store"),
    9: ("slab-out-of-bounds", "Write of size 30", "rep_store_down"),
    10: ("slab-out-of-bounds", "Read of size 30", "rep_move"), 11: ("slab-out-of-bounds", "Read of size", "follow"),
    12: ("slab-out-of-bounds", "Read of size", "sum_squares"), 13: ("slab-out-of-bounds", "Write of size 1", "store_byte"),
    14: ("slab-out-of-bounds", "Write of size 1", "store_byte"), 15: ("slab-out-of-bounds", "Write of size 1", "store_byte"),
    16: ("slab-out-of-bounds", "Write of size 4", "add_atomic"), 17: ("slab-out-of-bounds", "Write of size 4", "exchange"),
    18: ("slab-out-of-bounds", "Write of size 8", "compare_exchange"),
    19: ("slab-out-of-bounds", "Read of size 10", "load_extended"), 20: ("slab-out-of-bounds", "Write of size 1", "set_bit"),
    21: ("slab-out-of-bounds", "Read of size 30", "scan"), 22: ("slab-out-of-bounds", "Write of size 512", "store_state"),
    23: ("", "Write of size 1", "far_store"), 24: ("slab-use-after-free", "Read of size 8", "push_memory"),
    25: ("slab-use-after-free", "Write of size", "clear_struct"), 26: ("slab-use-after-free", "Read of size 1", "load_byte"),
    27: ("slab-out-of-bounds", "Write of size 1", "store_byte"), 28: ("slab-out-of-bounds", "Write of size 1", "store_byte"),
    29: ("slab-out-of-bounds", "Write of size 1", "store_byte"),
}


class Finds(WithModules):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rewrite(*PROGRAMS, wishes="shadow=paged" if IS_PAGED else None)

    def run_program(self, program, number, rewrite=1):
        # libc=0: what is found here, rewritten code found.
        return self.run_rewritten(program, str(number), options=f"rewrite={rewrite}:libc=0", is_limited=IS_PAGED)

    def test_each_bug_is_found_in_its_function(self):
        for program in PROGRAMS:
            for number, (kind, access, function) in BUGS.items():
                with self.subTest(program=pathlib.Path(program).name, bug=number):
                    done = self.run_program(program, number)
                    report = done.stderr
                    self.assertRegex(report, rf"BUG: KASAN: {kind}[a-z-]* in {function}\+")
                    self.assertIn(access, report)
                    self.assertEqual(done.stdout, "end\n", "the program goes on")
                    self.assertEqual(done.returncode, 99)
                    line = re.search(rf"\] {function}\+\S+ \[\S+\] (?:\w+ )?\S+\.[ch]:\d+", report)
                    self.assertIsNotNone(line, "file and line of the access")

    def test_a_program_without_the_bug_is_silent(self):
        for program in PROGRAMS:
            done = self.run_program(program, -1)
            self.assertEqual((done.stdout, done.stderr, done.returncode), ("end\n", "", 0))

    def test_without_rewriting_these_bugs_go_unseen(self):
        done = self.run_program(PROGRAMS[0], 0, rewrite=0)
        self.assertNotIn("BUG:", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
