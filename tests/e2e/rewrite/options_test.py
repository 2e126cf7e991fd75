#!/usr/bin/env python3
"""check=, exact=, strict_loads= and optout=: what rewritten code looks at, under the launcher, which prepares what each asks for:
options_test.py PENUMBRA PROGRAM"""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True

from rewriting import WithHome  # noqa: E402  (no bytecode beside the sources)

PROGRAM = str(pathlib.Path(sys.argv[2]).resolve())
STORE, LOAD, WIDE_LOAD, MISALIGNED = "store", "load", "wide", "misaligned"


class Options(WithHome):
    def run_it(self, which, *options, rewrite="rewrite=1", libc="libc=0"):
        done = self.launch(rewrite, libc, *options, PROGRAM, which)
        self.assertEqual(done.stdout, "end\n", done.stderr)
        return done.stderr

    def finds(self, which, *options):
        return f"BUG: KASAN: slab-out-of-bounds in {which}" in self.run_it(which, *options)

    def list_file(self, text):
        file = pathlib.Path(self.folder.name) / "optout"
        file.write_text(text)
        return f"optout={file}"

    def test_both_kinds_are_checked_by_default(self):
        self.assertTrue(self.finds(STORE))
        self.assertTrue(self.finds(LOAD))

    def test_check_chooses_the_kind(self):
        self.assertTrue(self.finds(STORE, "check=w"))
        self.assertFalse(self.finds(LOAD, "check=w"))
        self.assertFalse(self.finds(STORE, "check=r"))
        self.assertTrue(self.finds(LOAD, "check=r"))

    def test_libc_and_its_entry_points_report_the_chosen_kind_once(self):
        for rewrite in "rewrite=0", "rewrite=1":
            for which in "to_block", "from_block", "to_text", "from_text", "to_buffer", "from_buffer":
                if rewrite == "rewrite=0" and which.endswith("text"):
                    continue  # without rewriting nobody sees what is inside snprintf and atoi
                for kinds in "r", "w", "rw":
                    is_wanted = ("w" if which.startswith("to_") else "r") in kinds
                    with self.subTest(rewrite=rewrite, access=which, check=kinds):
                        said = self.run_it(which, f"check={kinds}", rewrite=rewrite, libc="libc=1")
                        self.assertEqual(said.count("BUG: "), int(is_wanted), said)

    def test_a_misaligned_access_that_begins_in_a_redzone_is_seen_by_exact_checks_only(self):
        self.assertFalse(self.finds(MISALIGNED))
        self.assertTrue(self.finds(MISALIGNED, "exact=1"))

    def test_a_wide_aligned_load_over_the_end_is_reported_on_wish_only(self):
        self.assertFalse(self.finds(WIDE_LOAD))
        self.assertTrue(self.finds(WIDE_LOAD, "strict_loads=1"))

    def test_a_function_on_the_list_is_left_out_and_no_other(self):
        name = pathlib.Path(PROGRAM).name
        option = self.list_file(f"# which and why\n{name} {STORE}   # rw\n\n")
        self.assertFalse(self.finds(STORE, option))
        self.assertTrue(self.finds(LOAD, option))
        option = self.list_file(f"other.so {STORE}\n{name} * w\n")
        self.assertFalse(self.finds(STORE, option))
        self.assertTrue(self.finds(LOAD, option))
        self.assertTrue(self.finds(STORE, self.list_file(f"{name} {STORE} r\n")))
        self.assertFalse(self.finds(STORE, self.list_file("* *\n")))

    def test_an_unreadable_list_is_one_line(self):
        done = self.launch("rewrite=1", "optout=/nowhere", PROGRAM, LOAD)
        self.assertIn("optout=/nowhere cannot be read", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
