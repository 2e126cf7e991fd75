#!/usr/bin/env python3
"""Reports as a user of the launcher meets them: report_through_test.py ROOT LAUNCHER CHK_OVERFLOW

The bundled demo with its four bugs, a stripped program without debug information, and the options that decide where a
report goes and what becomes of the process.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT, LAUNCHER, CHK_OVERFLOW = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
del sys.argv[1:4]
sys.path.insert(0, str(ROOT / "tests/support"))

import tap  # noqa: E402  (the path is set above)

ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ("MALLOC_PERTURB_", "LD_PRELOAD", "PENUMBRA_OPTIONS")}
DEMO_BUGS = ["slab-out-of-bounds", "slab-out-of-bounds", "slab-use-after-free", "double-free"]
DEMO_OUTPUT = f"sum {sum(b'Hello, half-shadow')}\n8 bytes copied\n"


def penumbra(*words, **more):
    return subprocess.run([str(word) for word in (LAUNCHER, *words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False, timeout=120, **dict({"env": ENVIRONMENT}, **more))


def bugs(text):
    return re.findall(r"^BUG: KASAN: ([a-z-]+) in ", text, re.MULTILINE)


class Reports(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="penumbra-test-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def test_the_demo_shows_four_bugs_with_lines_stacks_and_memory(self):
        done = penumbra("--demo")
        self.assertEqual((done.returncode, done.stdout), (99, DEMO_OUTPUT))
        self.assertEqual(bugs(done.stderr), DEMO_BUGS)
        self.assertRegex(done.stderr, r" \[<[0-9a-f]{16}>\] greet\+0x[0-9a-f]+/0x[0-9a-f]+ \[penumbra-demo\] /\S+/demo\.c:\d+\n")
        for words in ("Allocated by task ", "Freed by task ", "located 0 bytes to the right of", "18-byte region",
                      "Memory state around the buggy address:"):
            self.assertIn(words, done.stderr)
        self.assertNotIn("/../", done.stderr)

    def test_the_exit_status_says_that_something_was_reported(self):
        self.assertEqual(penumbra("exitcode=7", "--demo").returncode, 7)
        self.assertEqual(penumbra("exitcode=0", "--demo").returncode, 0)
        self.assertEqual(penumbra("sh", "-c", f"{CHK_OVERFLOW} 2>/dev/null; echo $?; exit 5").stdout, "99\n")
        # The shell itself reported nothing: its status is its own.
        self.assertEqual(penumbra("sh", "-c", f"{CHK_OVERFLOW} 2>/dev/null; exit 5").returncode, 5)

    def test_a_panic_ends_the_process_at_the_first_report(self):
        for option in ("fault=panic", "halt_on_error=1"):
            done = penumbra(option, "--demo")
            self.assertEqual(bugs(done.stderr), DEMO_BUGS[:1], option)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(done.stdout, "")

    def test_options_of_the_environment_count(self):
        environment = dict(ENVIRONMENT, PENUMBRA_OPTIONS="exitcode=12")
        self.assertEqual(penumbra("--demo", env=environment).returncode, 12)
        self.assertEqual(penumbra("exitcode=13", "--demo", env=environment).returncode, 13)

    def test_a_log_path_takes_the_report_and_the_process_id(self):
        process = subprocess.Popen([LAUNCHER, f"log_path={self.folder}/log.%p", "--demo"], env=ENVIRONMENT, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=120)
        self.assertEqual((process.returncode, out, err), (99, DEMO_OUTPUT, ""))
        self.assertEqual([path.name for path in self.folder.iterdir()], [f"log.{process.pid}"])
        self.assertEqual(bugs((self.folder / f"log.{process.pid}").read_text()), DEMO_BUGS)

    def test_a_stripped_overflow_through_memcpy_chk_has_its_stacks(self):
        program = self.folder / "stripped"
        subprocess.run(["strip", CHK_OVERFLOW, "-o", program], check=True)
        done = penumbra(program)
        self.assertEqual(done.returncode, 99)
        self.assertEqual(bugs(done.stderr), ["slab-out-of-bounds"])
        self.assertIn("Write of size 37 ", done.stderr)
        self.assertIn("allocated 36-byte region", done.stderr)
        self.check_stack(done.stderr, "Call Trace:\n")
        self.check_stack(done.stderr, r"Allocated by task \d+:\n")

    def test_a_stripped_double_free_has_its_stacks(self):
        program = self.folder / "stripped"
        subprocess.run(["strip", CHK_OVERFLOW, "-o", program], check=True)
        done = penumbra(program, "twice")
        self.assertEqual(done.returncode, 99)
        self.assertEqual(bugs(done.stderr), ["double-free"])
        for heading in ("Call Trace:\n", r"Allocated by task \d+:\n", r"Freed by task \d+:\n"):
            self.check_stack(done.stderr, heading)

    def check_stack(self, text, heading):
        """A frame in the program and one in libc, without symbols in the first: module and offset."""
        self.assertRegex(text, heading + r"( \[<[0-9a-f]{16}>\] .*\n)+")
        stack = re.search(heading + r"((?: \[<[0-9a-f]{16}>\] .*\n)+)", text)[1]
        self.assertIn("[stripped]", stack.splitlines()[0])
        self.assertIn("__libc_start_main", stack)

    def test_a_symbol_by_hand(self):
        symbols = subprocess.run(["nm", LAUNCHER.parent / "penumbra-demo"], capture_output=True, text=True, check=True)
        address = next(line.split()[0] for line in symbols.stdout.splitlines() if line.endswith(" T main"))
        done = penumbra("symbolize", LAUNCHER.parent / "penumbra-demo", address, "0x1")
        self.assertRegex(done.stdout, r"^0x[0-9a-f]+ main\+0x0/0x[0-9a-f]+ /\S+/demo\.c:\d+\n0x1 \?\?\n$")
        self.assertEqual(done.returncode, 1, "one address is unknown")
        self.assertEqual(penumbra("symbolize", "/bin/ls").returncode, 125)
        self.assertEqual(penumbra("symbolize", "/bin/ls", "xyz").returncode, 125)
        self.assertEqual(penumbra("symbolize", "--help").returncode, 0)


if __name__ == "__main__":
    tap.main()
