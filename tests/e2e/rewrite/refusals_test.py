#!/usr/bin/env python3
"""Where rewriting is refused the program runs all the same, and one line says why; after a program has sealed itself its checks
go on: refusals_test.py PENUMBRA LIBRARY START BUGS SEALED SIGNALS"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

from rewriting import WithModules  # noqa: E402  (no bytecode beside the sources)

LIBRARY, START, BUGS, SEALED, SIGNALS = (str(pathlib.Path(a).resolve()) for a in sys.argv[2:])


class Refusals(WithModules):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rewrite(BUGS, SEALED)

    def run_it(self, *command, rewrite="1", options="", **environment):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60,
                              env={"PATH": "/usr/bin:/bin", **environment,
                                   "PENUMBRA_OPTIONS": f"rewrite={rewrite}:libc=0:cache={self.folder.name}{options}"})
        if done.returncode == 77:
            self.skipTest("not refused by this kernel")
        return done

    def start(self, how, *command, **options):
        return self.run_it(START, how, *command, PRELOAD=LIBRARY, **options)

    def test_a_traced_program_is_not_rewritten_and_one_line_says_so(self):
        done = self.start("trace", BUGS, "0", rewrite="auto")
        self.assertEqual((done.stdout, done.returncode), ("end\n", 0))
        self.assertRegex(done.stderr, r"\Apenumbra: [^\n]*traced[^\n]*\n\Z")

    def test_a_traced_program_is_rewritten_when_told_so(self):
        self.assertIn("BUG: KASAN: slab-out-of-bounds in store_byte", self.start("trace", BUGS, "0").stderr)

    def test_auto_rewrites_an_untraced_program_silently(self):
        done = self.run_it(BUGS, "-1", rewrite="auto", LD_PRELOAD=LIBRARY)
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("end\n", "", 0))
        done = self.run_it(BUGS, "0", rewrite="auto", LD_PRELOAD=LIBRARY)
        self.assertIn("BUG: KASAN: slab-out-of-bounds in store_byte", done.stderr)

    def refuses_code(self, how):
        done = self.start(how, BUGS, "-1")
        self.assertEqual((done.stdout, done.returncode), ("end\n", 0))
        self.assertRegex(done.stderr, r"\Apenumbra: [^\n]*does not let code be changed[^\n]*\n\Z")
        self.assertIn("BUG: KASAN: double-free", self.start(how, SEALED, "twice").stderr, "the heap's own checks are left")

    def test_where_code_may_not_be_made_writable_the_heap_is_checked(self):
        self.refuses_code("mdwe")

    def test_where_a_filter_forbids_it_the_heap_is_checked(self):
        self.refuses_code("filter")

    def test_handlers_see_the_program_where_libc_is_not_rewritten(self):
        with tempfile.TemporaryDirectory(prefix="penumbra-modules.") as folder:
            options = f":verbose=1:handled_faults=0:cache={folder}"
            self.run_it(SIGNALS, options=options, LD_PRELOAD=LIBRARY)
            listing = subprocess.run(["readelf", "-n", "/lib/x86_64-linux-gnu/libc.so.6"], capture_output=True, text=True, check=True)
            identity = re.search(r"Build ID: ([0-9a-f]+)", listing.stdout)[1]
            [libc] = pathlib.Path(folder).glob(identity + "*.module")
            libc.write_bytes(b"")  # as for a module that cannot be rewritten
            done = self.run_it(SIGNALS, options=options, LD_PRELOAD=LIBRARY)
            self.assertRegex(done.stderr, r"rewritten [1-9]\d* of \d+ modules; without a module file 0, refused 1\n")
            self.assertTrue(done.stdout.endswith("\n0 claims failed\n"), done.stdout)

    def test_checks_go_on_in_a_sealed_process(self):
        done = self.run_it(SEALED, LD_PRELOAD=LIBRARY)
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("end\n", "", 0))

    def test_a_sealed_process_reports(self):
        done = self.run_it(SEALED, "bug", LD_PRELOAD=LIBRARY)
        self.assertEqual(done.stdout, "end\n", done.stderr)
        self.assertIn("BUG: KASAN: slab-out-of-bounds in store_behind", done.stderr)
        self.assertIn("Write of size 1", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
