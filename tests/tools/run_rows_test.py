"""How tests/run counts: by the words that meson recorded, for each kind of test program."""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from run_rows import Count, count_test  # noqa: E402  (the path is set above)

RUNNING = "[==========] Running 3 tests from 1 test suite.\n"


class CountTest(unittest.TestCase):
    def test_a_plain_program_is_one_test(self):
        self.assertEqual(count_test("OK", "whatever\n"), Count(passed=1))
        self.assertEqual(count_test("FAIL", ""), Count(failed=1))
        self.assertEqual(count_test("TIMEOUT", ""), Count(failed=1))
        self.assertEqual(count_test("SKIP", ""), Count(skipped=1))

    def test_each_googletest_case_counts_once_though_failures_are_listed_twice(self):
        text = (RUNNING + "[       OK ] A.One (0 ms)\n[  SKIPPED ] A.Two (0 ms)\n[  FAILED  ] A.Three (12 ms)\n"
                "[  PASSED  ] 1 test.\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] A.Three\n")
        self.assertEqual(count_test("FAIL", text), Count(1, 1, 1))

    def test_parameterized_cases_count(self):
        text = RUNNING + "[  FAILED  ] All/A.One/0, where GetParam() = 4 (0 ms)\n[       OK ] All/A.One/1 (0 ms)\n"
        self.assertEqual(count_test("FAIL", text), Count(1, 1, 0))

    def test_a_googletest_program_that_dies_is_a_failure_beside_its_passed_cases(self):
        self.assertEqual(count_test("FAIL", RUNNING + "[       OK ] A.One (0 ms)\n[ RUN      ] A.Two\n"), Count(1, 1, 0))

    def test_a_program_without_a_single_case_fails(self):
        self.assertEqual(count_test("OK", RUNNING), Count(failed=1))

    def test_tap_lines_count_singly(self):
        text = "1..3\nok 1 - a\nnot ok 2 - b\nok 3 - c # SKIP no gdb\n"
        self.assertEqual(count_test("FAIL", text), Count(1, 1, 1))


if __name__ == "__main__":
    unittest.main()
