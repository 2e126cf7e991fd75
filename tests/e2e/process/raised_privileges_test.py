#!/usr/bin/env python3
"""Programs with raised privileges leave us out: raised_privileges_test.py ROOT LIBRARY PROGRAM LINKED_PROGRAM

A set-uid copy of a program is run by another user, with every option set that could make us write. The dynamic loader
drops LD_PRELOAD by itself; a program that is linked with the library gets it all the same, and then it is the library
that must not believe the environment. The same copies without the bit show that the bug is reported otherwise.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT, LIBRARY, PROGRAM, LINKED = (pathlib.Path(word).resolve() for word in sys.argv[1:5])
del sys.argv[1:5]
sys.path.insert(0, str(ROOT / "tests/support"))

import tap  # noqa: E402  (the path is set above)

OWNER, CALLER = 1, 65534  # daemon and nobody on Debian; only that they differ, and are not root, matters


def run_as_caller(*words, **environment):
    return subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False, timeout=60, cwd="/", user=CALLER,
                          group=CALLER, extra_groups=[], env=dict(PATH="/usr/bin:/bin", **environment))


class RaisedPrivileges(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("only root can give a file to another user")
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.folder.chmod(0o755)
        if os.statvfs(self.folder).f_flag & os.ST_NOSUID:
            self.skipTest(f"{self.folder} is on a file system without set-uid programs")
        if "NoNewPrivs:\t0" not in pathlib.Path("/proc/self/status").read_text():
            self.skipTest("this process may not start set-uid programs (no_new_privs)")
        if run_as_caller("/usr/bin/test", "-r", LIBRARY).returncode != 0:
            self.skipTest(f"{LIBRARY} lies where other users cannot read it")
        self.logs = self.folder / "logs"
        self.logs.mkdir()
        self.logs.chmod(0o1777)

    def run_copy(self, program, mode, **environment):
        copy = self.folder / f"copy-{mode:o}-{program.name}"
        shutil.copy(program, copy)
        os.chown(copy, OWNER, OWNER)
        copy.chmod(mode)
        return run_as_caller(copy, PENUMBRA_OPTIONS=f"log_path={self.logs}/log:stats=1:verbose=1", **environment)

    def assert_left_out(self, done):
        self.assertEqual((done.returncode, done.stdout, done.stderr), (3, "secure 1\n", ""))
        self.assertEqual(list(self.logs.iterdir()), [])

    def assert_reported(self, done):
        self.assertEqual((done.returncode, done.stdout), (99, "secure 0\n"), done.stderr)
        self.assertIn("BUG: KASAN: slab-out-of-bounds", (self.logs / "log").read_text())

    def test_a_preload_is_ignored_by_a_set_uid_program_and_nothing_is_written(self):
        self.assert_left_out(self.run_copy(PROGRAM, 0o4755, LD_PRELOAD=str(LIBRARY)))
        self.assert_reported(self.run_copy(PROGRAM, 0o755, LD_PRELOAD=str(LIBRARY)))

    def test_a_set_uid_program_linked_with_the_library_believes_no_environment(self):
        self.assert_left_out(self.run_copy(LINKED, 0o4755))
        self.assert_reported(self.run_copy(LINKED, 0o755))

    def test_a_set_gid_program_is_no_different(self):
        self.assert_left_out(self.run_copy(PROGRAM, 0o2755, LD_PRELOAD=str(LIBRARY)))
        self.assert_left_out(self.run_copy(LINKED, 0o2755))


if __name__ == "__main__":
    tap.main()
