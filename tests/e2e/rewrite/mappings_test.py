#!/usr/bin/env python3
"""Address space that changes hands by `syscall` instructions takes no stale shadow along, and Penumbra's own memory stays
(memory ruling 3): mappings_test.py PENUMBRA PROGRAM (built from mappings.c)"""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True

from rewriting import WithHome  # noqa: E402  (no bytecode beside the sources)

PROGRAM = str(pathlib.Path(sys.argv[2]).resolve())


class Mappings(WithHome):
    def run_it(self, which, *options):
        return self.launch("rewrite=1", *options, PROGRAM, which)

    def test_stale_poison_is_gone_with_its_mapping(self):
        for which in "unmapped", "mapped_over", "mapped_over_by_any_number", "moved", "break":
            with self.subTest(mapping=which):
                done = self.run_it(which)
                self.assertEqual((done.stderr, done.stdout, done.returncode), ("", "end\n", 0))

    def test_poison_of_a_mapping_that_stays_is_still_reported(self):
        done = self.run_it("kept")
        self.assertIn("BUG: KASAN: use-after-poison in", done.stderr)
        self.assertEqual(done.stdout, "end\n")

    def test_memory_of_ours_is_refused_with_a_line_each(self):
        done = self.run_it("ours")
        self.assertEqual((done.stdout, done.returncode), ("exists\nexists\ninvalid\ninvalid\nend\n", 0), done.stderr)
        self.assertEqual(done.stderr.count("refused mmap of 0x"), 2, done.stderr)
        self.assertEqual(done.stderr.count("refused munmap of 0x"), 2, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 4, done.stderr)

    def test_results_and_errno_are_the_kernels(self):
        done = self.run_it("")
        self.assertEqual((done.stderr, done.stdout, done.returncode), ("", "as the kernel says\nend\n", 0))

    def test_a_thread_may_give_up_a_part_of_its_stack(self):
        for option in "stacks=0", "stacks=1":
            done = self.run_it("part_of_stack", option)
            self.assertEqual((done.stderr, done.stdout, done.returncode), ("", "0 0\nend\n", 0), option)

    def test_a_thread_may_unmap_its_own_stack(self):
        done = self.run_it("stack")
        self.assertEqual((done.stderr, done.stdout, done.returncode), ("", "end\n", 0))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
