#!/usr/bin/env python3
"""The libc of another namespace shares our heap (process ruling 15):
crossing_test.py PENUMBRA LIBRARY PROGRAM PLUGIN"""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True

from rewriting import WithModules, libc_of  # noqa: E402  (no bytecode beside the sources)

PROGRAM, PLUGIN = (str(pathlib.Path(a).resolve()) for a in sys.argv[3:])


class Crossing(WithModules):
    def test_memory_crosses_between_namespaces(self):
        self.rewrite(PROGRAM, PLUGIN, libc_of(PROGRAM))
        done = self.run_rewritten(PROGRAM, PLUGIN)
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("77\n", "", 0))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
