#!/usr/bin/env python3
"""rewrite=1 under the launcher: module files are made once, used silently afterwards, and believed only when whole and from
a folder that nobody else can write: prepare_test.py PENUMBRA PROGRAM WITHOUT_ID

WITHOUT_ID is the program once more, without a build-id."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

PENUMBRA, PROGRAM, WITHOUT_ID = (str(pathlib.Path(a).resolve()) for a in sys.argv[1:])


class Prepare(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.TemporaryDirectory(prefix="penumbra-home.")
        self.addCleanup(self.home.cleanup)
        self.cache = pathlib.Path(self.home.name) / ".cache/penumbra"

    def run_it(self, *arguments):
        return subprocess.run([PENUMBRA, "rewrite=1", "libc=0", *arguments], capture_output=True, text=True, check=False,
                              timeout=120, env={"HOME": self.home.name, "PATH": "/usr/bin:/bin"})

    def finds_the_bug(self):
        return "BUG: KASAN: slab-out-of-bounds in store_byte" in self.run_it(PROGRAM, "0").stderr

    def test_modules_are_prepared_once(self):
        first = self.run_it("verbose=1", PROGRAM, "-1")
        self.assertRegex(first.stderr, r"(?m)^penumbra: prepared \d+ modules$")
        made = {f.name: f.stat().st_mtime_ns for f in self.cache.iterdir()}
        self.assertTrue(made)
        self.assertTrue(all(name.endswith(".module") for name in made), "nothing half-written is left")
        second = self.run_it(PROGRAM, "-1")
        self.assertEqual((second.stdout, second.stderr, second.returncode), ("end\n", "", 0))
        self.assertEqual(made, {f.name: f.stat().st_mtime_ns for f in self.cache.iterdir()})
        self.assertTrue(self.finds_the_bug())

    def is_made_again_after(self, damage):
        self.run_it(PROGRAM, "-1")
        damaged = {}
        for file in self.cache.iterdir():
            damage(file)
            damaged[file] = file.read_bytes()
        done = self.run_it(PROGRAM, "-1")
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("end\n", "", 0))
        self.assertTrue(self.finds_the_bug())
        for file, content in damaged.items():
            self.assertNotEqual(file.read_bytes(), content, file)

    def test_a_damaged_module_file_is_not_used_but_made_again(self):
        def damage(file):
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 1
            file.write_bytes(content)
        self.is_made_again_after(damage)

    def test_a_whole_module_file_that_changed_its_time_is_summed_and_used(self):
        self.run_it(PROGRAM, "-1")
        for file in self.cache.iterdir():
            file.write_bytes(file.read_bytes())
        self.assertTrue(self.finds_the_bug())

    def test_a_truncated_module_file_is_not_used_but_made_again(self):
        self.is_made_again_after(lambda file: os.truncate(file, file.stat().st_size // 2 & ~7))
        self.is_made_again_after(lambda file: os.truncate(file, 100))

    def test_a_file_without_a_build_id_is_known_by_its_contents(self):
        self.assertNotIn("Build ID", subprocess.run(["readelf", "-n", WITHOUT_ID], capture_output=True, text=True, check=True).stdout)
        self.assertIn("BUG: KASAN: slab-out-of-bounds in store_byte", self.run_it(WITHOUT_ID, "0").stderr)
        mine = [file.name for file in self.cache.iterdir() if file.name.startswith("content-")]
        self.assertEqual(len(mine), 1)
        # Another program of the same name and size: only a constant differs.
        content = pathlib.Path(WITHOUT_ID).read_bytes()
        self.assertEqual(content.count(b"a byte of the constants"), 1)
        other = pathlib.Path(self.home.name) / "other"
        other.write_bytes(content.replace(b"a byte of the constants", b"A byte of the constants"))
        other.chmod(0o755)
        self.assertIn("BUG: KASAN: slab-out-of-bounds in store_byte", self.run_it(str(other), "0").stderr)
        self.assertEqual(len([file for file in self.cache.iterdir() if file.name.startswith("content-")]), 2)

    def test_a_file_that_others_can_write_is_not_used(self):
        self.run_it(PROGRAM, "-1")
        for file in self.cache.iterdir():
            file.chmod(0o666)
        self.assertFalse(self.finds_the_bug())

    def test_what_nobody_uses_goes_when_something_new_is_made(self):
        self.cache.mkdir(parents=True)
        old = self.cache / "00ff.0123456789ab.module"
        young = self.cache / "00fe.0123456789ab.module"
        for file, days in ((old, 8), (young, 6)):
            file.write_bytes(b"x" * 100_000)
            then = time.time() - days * 86400
            os.utime(file, (then, then))
        self.run_it(PROGRAM, "-1")
        self.assertFalse(old.exists(), "of another rewriter, unused for a week")
        self.assertTrue(young.exists())
        mine = {file.name for file in self.cache.iterdir()} - {young.name}
        # All older than the hour, and one is missing: only what this start has found or made is safe from the limit.
        missing = max(mine)
        (self.cache / missing).unlink()
        two_hours_ago = time.time() - 7200
        for file in self.cache.iterdir():
            os.utime(file, (two_hours_ago, two_hours_ago))
        self.run_it("cache_limit=1", PROGRAM, "-1")
        self.assertEqual({file.name for file in self.cache.iterdir()}, mine)
        self.assertTrue(self.finds_the_bug())

    def test_the_cache_says_what_it_holds_and_is_cleared(self):
        self.run_it(PROGRAM, "-1")
        count = len(list(self.cache.iterdir()))
        def cache(*words):
            return subprocess.run([PENUMBRA, "cache", *words], capture_output=True, text=True, check=True, timeout=60,
                                  env={"HOME": self.home.name}).stdout
        self.assertRegex(cache(), rf"{self.cache}: kept below 2147.5 MB.*\n  of this rewriter    {count} files, .*\n"
                                  r"  of other rewriters  0 files, 0.0 MB\n")
        self.assertRegex(cache("--prune", "cache_limit=1"), "0 files, 0.0 MB taken out")
        for words in ["cahce=/nowhere"], ["everything"]:
            refused = subprocess.run([PENUMBRA, "cache", "--clear", *words], capture_output=True, text=True, check=False, timeout=60,
                                     env={"HOME": self.home.name, "PATH": "/usr/bin:/bin"})
            self.assertEqual((refused.returncode, refused.stdout), (125, ""))
            self.assertRegex(refused.stderr, r"\Apenumbra: [^\n]*" + words[0].split("=")[0] + r"[^\n]*\n\Z")
        self.assertRegex(cache("--clear"), rf"{count} files, .* taken out")
        self.assertEqual(list(self.cache.iterdir()), [])

    def test_a_script_is_checked_through_its_interpreter(self):
        script = pathlib.Path(self.home.name) / "script"
        script.write_text(f"#!{PROGRAM}\n")
        script.chmod(0o755)
        self.run_it(str(script))
        self.assertTrue(list(self.cache.iterdir()), "the interpreter's modules")

    def test_a_cache_that_cannot_be_made_is_one_line_and_the_program_runs(self):
        done = self.run_it("cache=/proc/nowhere", PROGRAM, "-1")
        self.assertEqual(done.stdout, "end\n")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
