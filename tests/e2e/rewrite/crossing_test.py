#!/usr/bin/env python3
"""The libc of another namespace shares our heap (process ruling 15):
crossing_test.py PENUMBRA LIBRARY PROGRAM PLUGIN"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PENUMBRA, LIBRARY, PROGRAM, PLUGIN = (str(pathlib.Path(a).resolve()) for a in sys.argv[1:])
LIBC = re.search(r"(/\S*libc\.so\.6)", subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True).stdout)[1]


class Crossing(unittest.TestCase):
    def crosses(self, *files):
        with tempfile.TemporaryDirectory(prefix="penumbra-modules.") as folder:
            subprocess.run([PENUMBRA, "rewrite", "-o", folder, *files], check=True)
            done = subprocess.run([PROGRAM, PLUGIN], capture_output=True, text=True, check=False, timeout=60,
                                  env={"LD_PRELOAD": LIBRARY, "PENUMBRA_OPTIONS": f"rewrite=1:cache={folder}"})
            self.assertEqual((done.stdout, done.stderr, done.returncode), ("77\n", "", 0))

    def test_memory_crosses_between_namespaces(self):
        self.crosses(PROGRAM, PLUGIN, LIBC)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
