#!/usr/bin/env python3
"""Memory that only the kernel touches is checked at `syscall` instructions, libc's and the program's own, known by number when
they are rewritten or when they run: system_calls_test.py PENUMBRA LIBRARY PROGRAM (built from system_call_bugs.c)."""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True

from rewriting import WithModules, libc_of  # noqa: E402  (no bytecode beside the sources)

PROGRAM = str(pathlib.Path(sys.argv[3]).resolve())

OUT = "slab-out-of-bounds"
FREED = "slab-use-after-free"
# number: class, access, system call, function with the bug
BUGS = {
    0: (OUT, "Write of size 20", "read", "read_too_much"),
    1: (FREED, "Read of size 30", "write", "write_what_is_freed"),
    2: (OUT, "Read of size 40", "write", "call_with_too_much"),
    3: (OUT, "Read of size 40", "write", "instruction_with_too_much"),
    4: (OUT, "Write of size 20", "read", "instruction_of_no_known_number"),
    5: (OUT, "Read of size 17", "open", "path_without_end"),
    6: (OUT, "Write of size 144", "newfstatat", "status_into_small"),
    7: (OUT, "Write of size 16", "readv", "vector_into_small"),
    8: (OUT, "Write of size 9", "getcwd", "folder_into_small"),
    9: (OUT, "Write of size 8", "pipe", "pipe_into_small"),
    10: (OUT, "Write of size", "getsockname", "name_into_small"),
    11: (OUT, "Read of size 16", "poll", "poll_too_many"),
    12: (OUT, "Read of size 16", "(clock_)?nanosleep", "sleep_for_no_time"),
    13: (OUT, "Write of size 12", "getrandom", "random_too_much"),
    14: (FREED, "Read of size 16", "sendmsg", "message_from_freed"),
    15: (OUT, "Write of size 4", "ioctl", "control_into_small"),
    16: (OUT, "Write of size 32", "fcntl", "lock_into_small"),
    17: (OUT, "Write of size 16", "clock_gettime", "time_into_small"),
}
ONLY_WHEN_STRICT = 18


class SystemCalls(WithModules):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rewrite(PROGRAM, libc_of(PROGRAM))

    def run_program(self, number, options=""):
        return self.run_rewritten(PROGRAM, str(number), options=f"rewrite=1:{options}")

    def test_each_bug_is_found_once_at_its_call(self):
        for number, (kind, access, call, function) in BUGS.items():
            with self.subTest(bug=number, function=function):
                done = self.run_program(number)
                self.assertEqual(done.stderr.count("BUG: "), 1, done.stderr)
                self.assertRegex(done.stderr, rf"BUG: KASAN: {kind} in .*\n{access}.*\nChecked call: {call}(at|2)?\(\)")
                self.assertRegex(done.stderr.split("Allocated by")[0], rf"\] {function}\+")
                self.assertEqual((done.stdout, done.returncode), ("end\n", 99), "the program goes on")

    def test_an_instruction_of_the_program_is_reported_where_it_stands(self):
        for number in 3, 4:
            self.assertRegex(self.run_program(number).stderr, rf"BUG: KASAN: {OUT} in {BUGS[number][3]}\+")

    def test_room_that_the_kernel_did_not_use_is_reported_only_when_strict(self):
        self.assertEqual(self.run_program(ONLY_WHEN_STRICT).stderr, "")
        strict = self.run_program(ONLY_WHEN_STRICT, "strict_syscalls=1")
        self.assertRegex(strict.stderr, rf"BUG: KASAN: {OUT} in .*\nWrite of size 100")

    def test_a_program_without_a_bug_is_silent(self):
        for options in "", "strict_syscalls=1":
            done = self.run_program(-1, options)
            self.assertEqual((done.stdout, done.stderr, done.returncode), ("end\n", "", 0))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
