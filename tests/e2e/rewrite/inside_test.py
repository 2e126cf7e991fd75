#!/usr/bin/env python3
"""Bad accesses inside libraries that got a bad buffer (and were loaded later), and in constructors, threads, handlers, comparators, exit
functions and deep recursion: inside_test.py PENUMBRA PROGRAM"""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True

from rewriting import WithHome  # noqa: E402  (no bytecode beside the sources)

PROGRAM = str(pathlib.Path(sys.argv[2]).resolve())
MISSING = 77  # the library is not installed
CASES = {
    "checksum_zlib": ("slab-out-of-bounds in adler32", "libz.so", "Read of size"),
    "crc_zlib": ("slab-use-after-free in crc32", "libz.so", "Read of size"),
    "inflate_zlib": ("slab-out-of-bounds in", "libz.so", "Write of size"),
    "integer_png": ("slab-out-of-bounds in png_get_uint_32", "libpng16.so", "Read of size 4"),
    "save_png": ("slab-out-of-bounds in png_save_uint_32", "libpng16.so", "Write of size 4"),
    "text_xml": ("slab-out-of-bounds in xmlStrEqual", "libxml2.so", "Read of size 1"),
}
CASES |= {name: ("slab-out-of-bounds in bad_store", "inside", "Write of size 1")
          for name in ("constructor", "thread", "signal_handler", "comparator", "exit_handler", "recursion")}


class Inside(WithHome):
    def run_it(self, name):
        # libc=0: what is found here, rewritten code found.
        return self.launch("rewrite=1", "libc=0", PROGRAM, name, timeout=300)

    def test_each_is_found_where_it_is(self):
        # A library that is loaded later may come too late to be rewritten the first time: it is ready the second.
        for name, (bug, module, access) in CASES.items():
            with self.subTest(case=name):
                done = self.run_it(name)
                if done.returncode == MISSING:
                    continue
                if "BUG:" not in done.stderr:
                    done = self.run_it(name)
                self.assertIn("BUG: KASAN: " + bug, done.stderr)
                self.assertIn(access, done.stderr)
                self.assertIn(module, done.stderr)
                self.assertEqual(done.stdout, "end\n", "the program goes on")
                if module == "inside":
                    self.assertRegex(done.stderr, r"\] bad_store\+\S+ \[inside\] (?:\w+ )?\S*inside\.c:\d+")

    def test_without_a_bad_buffer_all_is_silent(self):
        self.run_it("none")
        done = self.run_it("none")
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("end\n", "", 0))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
