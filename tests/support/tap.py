"""Runs a module's unittest cases and prints TAP, so that tests/run counts each case: tap.main() instead of
unittest.main(). The claim is the test's name."""

import sys
import traceback
import unittest


class _Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.number = 0
        self.all_good = True

    def _tell(self, word, test, remark="", details=""):
        self.number += 1
        print(f"{word} {self.number} - {test.id().removeprefix('__main__.')}{remark}", flush=True)
        for line in details.splitlines():
            print(f"# {line}", flush=True)

    def _bad(self, test, error):
        self.all_good = False
        self._tell("not ok", test, details="".join(traceback.format_exception(*error)))

    def addSuccess(self, test):
        self._tell("ok", test)

    def addFailure(self, test, err):
        self._bad(test, err)

    def addError(self, test, err):
        self._bad(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._bad(subtest, err)

    def addSkip(self, test, reason):
        self._tell("ok", test, f" # SKIP {reason}")


def main():
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    print(f"1..{suite.countTestCases()}", flush=True)
    result = _Result()
    suite.run(result)
    sys.exit(0 if result.all_good and result.number > 0 else 1)
