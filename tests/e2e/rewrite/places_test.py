#!/usr/bin/env python3
"""What libc's code runs into is reported once for each call of the program: places_test.py PENUMBRA PROGRAM"""

import pathlib
import re
import sys
import unittest

sys.dont_write_bytecode = True

from rewriting import WithHome  # noqa: E402  (no bytecode beside the sources)

PROGRAM = str(pathlib.Path(sys.argv[2]).resolve())


class Places(WithHome):
    def reports(self, word):
        done = self.launch("rewrite=1", PROGRAM, word)
        self.assertIn("end\n", done.stderr)
        return re.split(r"^=+\n(?=BUG: )", done.stderr, flags=re.MULTILINE)[1:]

    def test_one_call_that_reads_a_freed_string_twice_is_one_report(self):
        found = self.reports("one-call")
        self.assertEqual([report.splitlines()[0].split()[2] for report in found], ["slab-use-after-free"])
        self.assertIn(" main+", found[0])

    def test_two_calls_with_one_bad_string_are_two_reports(self):
        found = self.reports("two-calls")
        self.assertEqual([re.search(r" (say_\w+)\+", report)[1] for report in found], ["say_first", "say_second"])

    def test_one_call_in_a_loop_is_one_report(self):
        self.assertEqual(len(self.reports("a-loop")), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
