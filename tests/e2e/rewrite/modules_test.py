#!/usr/bin/env python3
"""Modules that a program loads later are rewritten like those that it starts with (process ruling 10), and give everything
back when they go: modules_test.py PENUMBRA LIBRARY HOST PLUGIN BUSY"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

PENUMBRA, LIBRARY, HOST, PLUGIN, BUSY = (str(pathlib.Path(a).resolve()) for a in sys.argv[1:])
EXTENSIONS = "import _json, _struct, math, zlib, _hashlib, json, zlib; print(json.dumps([1, 2]), zlib.crc32(b'x'), math.sqrt(2))"


class Modules(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="penumbra-modules.")
        self.addCleanup(self.folder.cleanup)

    def prepare(self, *files):
        subprocess.run([PENUMBRA, "rewrite", "-o", self.folder.name, *files], check=True)

    def run_it(self, *command, options="", cwd=None, **environment):
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=cwd,
                              env={"LD_PRELOAD": LIBRARY, "PATH": "/usr/bin:/bin", **environment,
                                   "PENUMBRA_OPTIONS": f"rewrite=1:libc=0:stats=1:cache={self.folder.name}:{options}"})

    def counts(self, done):
        return {name: int(value) for name, value in re.findall(r"^(modules[a-z ]*|areas released):\s+(\d+)$", done.stderr, re.M)}

    def reports(self, done):
        return re.findall(r"BUG: KASAN: \S+ in (\w+)\+", done.stderr)

    def test_a_bug_in_a_plugin_is_found_at_function_and_line(self):
        self.prepare(HOST, PLUGIN)
        done = self.run_it(HOST, PLUGIN, "1", "f")
        self.assertEqual((done.stdout, done.returncode), ("sum 318\n", 99), done.stderr)
        self.assertEqual(self.reports(done), ["overflow_in_plugin"])
        self.assertRegex(done.stderr, r"overflow_in_plugin\+\S+ \[plugin\S*\] (?:\w+ )?\S*plugin\.c:\d+")

    def test_constructors_and_destructors_of_a_plugin_are_checked(self):
        self.prepare(HOST, PLUGIN)
        for when in "cd":
            done = self.run_it(HOST, PLUGIN, "1", "n", PLUGIN_BUG=when)
            self.assertEqual((done.stdout, self.reports(done)), ("sum 318\n", ["overflow_in_plugin"]), done.stderr)

    def test_a_plugin_without_a_bug_is_silent(self):
        self.prepare(HOST, PLUGIN)
        done = self.run_it(HOST, PLUGIN, "1", "n")
        self.assertEqual((done.stdout, done.returncode, self.reports(done)), ("sum 318\n", 0, []), done.stderr)

    def test_loading_and_unloading_again_and_again_keeps_nothing(self):
        self.prepare(HOST, PLUGIN)
        done = self.run_it(HOST, PLUGIN, "1500", "n")
        self.assertEqual((done.stdout, done.returncode), (f"sum {1500 * 318}\n", 0), done.stderr)
        counts = self.counts(done)
        self.assertEqual(counts["areas released"], 1500, "more than there are places for areas")
        self.assertGreaterEqual(counts["modules rewritten"], 1501)

    def test_a_bug_is_found_in_the_last_of_many_loads(self):
        self.prepare(HOST, PLUGIN)
        self.assertEqual(self.reports(self.run_it(HOST, PLUGIN, "20", "f", options="multi_shot=1")), ["overflow_in_plugin"] * 20)

    def test_threads_and_their_handlers_run_while_modules_come_and_go(self):
        self.prepare(BUSY, PLUGIN)
        done = self.run_it(BUSY, PLUGIN, "300")
        self.assertEqual((done.stdout, done.returncode, self.reports(done)), ("wrong 0, stacks cut short 0\n", 0, []),
                         done.stderr)
        self.assertGreaterEqual(self.counts(done)["areas released"], 300)

    def test_a_plugin_in_another_namespace_is_checked(self):
        self.prepare(HOST, PLUGIN)
        done = self.run_it(HOST, PLUGIN, "3", "n", "namespace")
        self.assertEqual((done.stdout, done.returncode), ("sum 954\n", 0), done.stderr)
        self.assertEqual(self.counts(done)["areas released"], 6, "the plugin and its libc, three times")

    def test_what_the_cache_does_not_have_is_prepared_while_dlopen_waits(self):
        self.prepare(HOST)
        first = self.run_it(HOST, PLUGIN, "1", "f")
        self.assertEqual(self.reports(first), ["overflow_in_plugin"], first.stderr)
        made = sorted(os.listdir(self.folder.name))
        again = self.run_it(HOST, PLUGIN, "1", "f")
        self.assertEqual(self.reports(again), ["overflow_in_plugin"], again.stderr)
        self.assertEqual(sorted(os.listdir(self.folder.name)), made)

    def test_the_program_sees_no_child_of_ours(self):
        self.prepare(HOST)
        done = self.run_it(HOST, PLUGIN, "1", "f", "children")
        self.assertEqual((done.stdout, self.reports(done)), ("no children\nsum 318\n", ["overflow_in_plugin"]), done.stderr)

    def test_dlopen_waits_two_seconds_and_the_helper_finishes_by_itself(self):
        self.prepare(HOST)
        self.run_it(HOST, PLUGIN, "0", "n")  # prepares the libraries
        # The same library, with a slow helper beside it.
        folder = pathlib.Path(self.folder.name) / "slow"
        (folder / "launcher").mkdir(parents=True)
        shutil.copy(LIBRARY, folder / "libpenumbra.so")
        helper = folder / "launcher/penumbra"
        helper.write_text(f"#!/bin/sh\nsleep 9\necho \"$@\" > {folder}/finished\n")
        helper.chmod(0o755)
        begin = time.monotonic()
        done = self.run_it(HOST, PLUGIN, "1", "f", "children", options="symbolize=0", LD_PRELOAD=str(folder / "libpenumbra.so"))
        took = time.monotonic() - begin
        self.assertEqual((done.stdout, self.reports(done)), ("no children\nsum 318\n", []), done.stderr)
        self.assertEqual(self.counts(done)["modules missing"], 1)
        self.assertGreaterEqual(took, 1.9)
        self.assertLess(took, 8.5)
        while not (folder / "finished").exists() and time.monotonic() < begin + 30:
            time.sleep(0.1)
        self.assertEqual((folder / "finished").read_text(), f"rewrite --prepare -o {self.folder.name} --options check=rw:exact=0:cache_limit={2 << 30} {PLUGIN}\n")

    def test_a_plugin_opened_by_a_relative_path_is_prepared_too(self):
        shutil.copy(PLUGIN, self.folder.name + "/relative.so")
        done = self.run_it(HOST, "./relative.so", "1", "f", cwd=self.folder.name)
        self.assertEqual(self.reports(done), ["overflow_in_plugin"], done.stderr)

    def test_the_preload_alone_prepares_everything_in_a_new_folder(self):
        folder = self.folder.name + "/new/cache"
        done = self.run_it(HOST, PLUGIN, "1", "f", options=f"cache={folder}")
        self.assertEqual(self.reports(done), ["overflow_in_plugin"], done.stderr)
        self.assertTrue(os.listdir(folder))

    def test_python_runs_its_extension_modules_rewritten(self):
        python = "/usr/bin/python3.11"
        if not os.access(python, os.X_OK):
            self.skipTest("python3.11 is not installed")
        extensions = list(pathlib.Path("/usr/lib/python3.11/lib-dynload").glob("_json*.so")) + \
            list(pathlib.Path("/usr/lib/python3.11/lib-dynload").glob("_hashlib*.so"))
        self.prepare(*map(str, extensions))
        plain = subprocess.run([python, "-S", "-c", EXTENSIONS], capture_output=True, text=True, check=True)
        done = self.run_it(python, "-S", "-c", EXTENSIONS)
        self.assertEqual((done.stdout, done.returncode, self.reports(done)), (plain.stdout, 0, []), done.stderr)
        self.assertGreaterEqual(self.counts(done)["modules rewritten"], len(extensions))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
