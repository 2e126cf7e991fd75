#!/usr/bin/env python3
"""Every shape of access, with each kind of bad buffer, is reported in its function and at its line, as the read or write it is; with
a good buffer nothing is: shapes_test.py PENUMBRA LIBRARY PROGRAM...

Programs of other builds than the first run each shape with one kind of buffer only."""

import pathlib
import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True

from rewriting import WithModules  # noqa: E402  (no bytecode beside the sources)

PROGRAMS = [str(pathlib.Path(a).resolve()) for a in sys.argv[3:]]
KINDS = {"over": "slab-out-of-bounds", "under": "slab-out-of-bounds", "freed": "slab-use-after-free", "moved": "slab-use-after-free",
         "far": ""}
# Those whose first operand is read; the others write.
READS = re.compile(r"read_|float_|integer_load|conditional_move|bit_test|repeat_load|repeat_scan|table_lookup|masked_load|gather|push_pop")


class Shapes(WithModules):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rewrite(*PROGRAMS)
        cls.names = subprocess.run([PROGRAMS[0]], capture_output=True, text=True, check=True).stdout.split()
        assert len(cls.names) >= 40

    def run_program(self, program, *arguments):
        return self.run_rewritten(program, *arguments, options="rewrite=1:libc=0")

    def check(self, program, name, kind):
        with self.subTest(program=pathlib.Path(program).name, shape=name, buffer=kind):
            done = self.run_program(program, name, kind)
            # The image of a whole state, aligned to 64 bytes, begins beyond a freed block of 40.
            bug = "" if name == "save_state" else KINDS[kind]
            self.assertRegex(done.stderr, rf"BUG: KASAN: {bug}[a-z-]* in {name}\+")
            self.assertIn("Read of size" if READS.match(name) else "Write of size", done.stderr)
            self.assertRegex(done.stderr, rf"\] {name}\+\S+ \[\S+\] (?:\w+ )?\S+shapes\.c:\d+", "file and line")
            self.assertEqual(done.stdout, "end\n", "the program goes on")

    def test_each_shape_over_each_kind_of_buffer(self):
        for name in self.names:
            for kind in KINDS:
                self.check(PROGRAMS[0], name, kind)

    def test_each_shape_in_every_build(self):
        kinds = list(KINDS)
        for number, program in enumerate(PROGRAMS[1:]):
            for n, name in enumerate(self.names):
                if n % 4 == number % 4:
                    self.check(program, name, kinds[(n + number) % 4])

    def test_good_buffers_are_silent(self):
        for program in PROGRAMS:
            done = self.run_program(program, "all", "fine")
            self.assertEqual((done.stdout, done.stderr, done.returncode), ("end\n", "", 0))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
