#!/usr/bin/env python3
"""Bugs that only libc's own code touches memory for are found there: libc_finds_test.py PENUMBRA LIBRARY PROGRAM

PROGRAM is built from libc_bugs.c; it and libc are rewritten. The first report names the access, lies in libc, and its stack
leads through the public function to the one that has the bug. One bug may be several accesses (a length is taken, then
that much is copied); none is reported twice.
"""

import pathlib
import re
import sys
import unittest

sys.dont_write_bytecode = True

from rewriting import WithModules, libc_of  # noqa: E402  (no bytecode beside the sources)

PROGRAM = str(pathlib.Path(sys.argv[3]).resolve())

OUT = "slab-out-of-bounds"
# number: class, access, module of the access, public function of libc on the stack ("" where it was a tail call), function
BUGS = {
    0: (OUT, "Read of size 4", "libc_bugs", "qsort_r", "sort_too_many"),
    1: (OUT, "Read of size 4", "libc_bugs", "qsort_r", "sort_by_what_is_not_there"),
    2: (OUT, "Read of size 4", "libc_bugs", "", "search_too_many"),
    3: (OUT, "Read of size 25", "libc.so.6", "strtok_r", "tokens_of_no_text"),
    4: (OUT, "Read of size 25", "libc.so.6", "fprintf", "print_no_text"),
    5: (OUT, "Write of size", "libc.so.6", "snprintf", "print_too_much"),
    6: ("slab-use-after-free", "Write of size", "libc.so.6", "getdelim", "line_into_freed"),
    7: (OUT, "Write of size 1", "libc.so.6", "sscanf", "scan_into_small"),
    8: (OUT, "Write of size 4", "libc.so.6", "sscanf", "scan_number_into_small"),
    9: (OUT, "Write of size 30", "libc.so.6", "fread", "read_block_into_small"),
    10: (OUT, "Write of size", "libc.so.6", "fgets", "read_line_into_small"),
    11: (OUT, "Read of size 1", "libc.so.6", "", "number_without_end"),
    12: (OUT, "Read of size 1", "libc.so.6", "", "real_number_without_end"),
    13: (OUT, "Read of size 9", "libc.so.6", "inet_pton", "address_without_end"),
    14: (OUT, "Write of size", "libc.so.6", "", "time_into_small"),
    15: (OUT, "Read of size 25", "libc.so.6", "", "variable_without_end"),
    16: (OUT, "Read of size 25", "libc.so.6", "fprintf", "pattern_without_end"),
}


class Finds(WithModules):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rewrite(PROGRAM, libc_of(PROGRAM))

    def run_program(self, number):
        return self.run_rewritten(PROGRAM, str(number))

    def test_each_bug_is_found_once_and_where_it_is(self):
        for number, (kind, access, module, public, function) in BUGS.items():
            with self.subTest(bug=number, function=function):
                done = self.run_program(number)
                reports = done.stderr.split("BUG: ")[1:]
                first = reports[0].split("\n\nAllocated by")[0]
                self.assertRegex(first, rf"\AKASAN: {kind} in \S+ \[{re.escape(module)}\]\n{access}")
                self.assertRegex(first, rf"{public}\+[\s\S]*\] {function}\+")
                places = [re.search(r"(\w+ of size \d+ at addr \w+)[\s\S]*?\n (\[<\w+>\])", report).groups() for report in reports]
                self.assertEqual(len(set(places)), len(places), "an access is reported once")
                for call in re.findall(r"^Checked call: (\w+)", done.stderr, re.MULTILINE):
                    self.assertRegex(call, "^(_*(mem|str|wmem|wcs|stp)(?!tok)|rawmem|_*r?index)", "libc's code is checked, not its callers")
                self.assertEqual((done.stdout, done.returncode), ("end\n", 99), "the program goes on")

    def test_a_program_without_a_bug_is_silent(self):
        done = self.run_program(-1)
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("end\n", "", 0))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
