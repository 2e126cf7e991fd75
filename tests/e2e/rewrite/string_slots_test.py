#!/usr/bin/env python3
"""All string functions that libc's ifuncs choose, for whatever processor, are ours also inside libc, and work (but for code that the rewriter does not understand):
string_slots_test.py PENUMBRA LIBRARY PROGRAM"""

import pathlib
import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True

from rewriting import PENUMBRA, WithModules, libc_of  # noqa: E402  (no bytecode beside the sources)

PROGRAM = str(pathlib.Path(sys.argv[3]).resolve())

# glibc.cpu.hwcaps, from all that this processor has down to what every x86-64 has.
PROCESSORS = [
    "",
    "-AVX512VL,-AVX512F,-AVX512BW",
    "-AVX512VL,-AVX512F,-AVX512BW,-RTM,-ERMS",
    "-AVX512VL,-AVX512F,-AVX512BW,-AVX2,-AVX2_Usable,-AVX_Fast_Unaligned_Load,-BMI2",
    "-AVX512VL,-AVX512F,-AVX512BW,-AVX2,-AVX2_Usable,-AVX_Fast_Unaligned_Load,-BMI2,-SSE4_2,-SSE4_1,-SSSE3,-ERMS",
    "Prefer_No_VZEROUPPER,-AVX512VL",
]


class Slots(WithModules):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.libc = libc_of(PROGRAM)
        cls.rewrite(PROGRAM, cls.libc)

    # Not understood, or entered behind its begin while its own computed jumps leave no room for another jump.
    def may_be_left(self, offset):
        text = subprocess.run([PENUMBRA, "rewrite", "--disassemble", f"0x{offset}", self.libc], capture_output=True, text=True,
                              check=True).stdout
        return "an instruction that is not believed" in text or re.search(r"^ +\w+ +jmp r\w+ ", text, re.MULTILINE) is not None

    def results(self, done):
        return [line for line in done.stdout.splitlines() if not re.match("slots|unchecked", line)]

    def test_every_choice_is_checked_and_works(self):
        for processor in PROCESSORS:
            with self.subTest(processor=processor):
                environment = {"GLIBC_TUNABLES": f"glibc.cpu.hwcaps={processor}"} if processor else {}
                alone = subprocess.run([PROGRAM], capture_output=True, text=True, check=True, timeout=60, env=environment)
                ours = self.run_rewritten(PROGRAM, **environment)
                self.assertEqual((ours.stderr, ours.returncode), ("", 0))
                unchecked = re.findall(r"^unchecked: offset (\w+)$", ours.stdout, re.MULTILINE)
                for offset in unchecked:
                    self.assertTrue(self.may_be_left(offset), f"the function at {offset}")
                self.assertLessEqual(len(set(unchecked)), 2)
                self.assertIn("slots: many", ours.stdout)
                self.assertEqual(self.results(ours), self.results(alone))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
