#!/usr/bin/env python3
"""What ./penumbra does before the launcher runs: set_up_test.py ROOT

The script of the tree runs in a small tree of its own. What it calls (dpkg-query, apt-get, id, meson, ninja) are stand-ins
that write down how they were called and can be told to fail; the launcher that "ninja" makes is a shell script. So
the set-up runs in milliseconds, and its mishaps can be had at will.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "tests/support"))

import tap  # noqa: E402  (the path is set above)

STAND_INS = {
    # Answers "installed" for what the file `installed` lists.
    "dpkg-query": 'for last; do :; done; grep -qx "$last" "$STATE/installed" && echo installed',
    "apt-get": """
echo "apt-get $*" >>"$STATE/calls"
if [ -e "$STATE/apt-fails" ]; then
  if [ -e "$STATE/apt-fails-once" ]; then rm "$STATE/apt-fails" "$STATE/apt-fails-once"; fi
  echo 'E: Unable to fetch some archives' >&2; exit 100
fi
case $1 in install) shift; for word; do echo "$word" >>"$STATE/installed"; done ;; esac
""",
    "dpkg": 'echo "dpkg $*" >>"$STATE/calls"',
    "id": 'cat "$STATE/uid"',
    "meson": """
echo "meson $*" >>"$STATE/calls"
[ -e "$STATE/meson-fails" ] && { echo 'meson.build:1:0: ERROR: no compiler'; exit 1; }
for word; do case $word in */build) folder=$word ;; esac; done
[ -d "$folder/meson-private" ] && exit 0  # a real one believes that it is configured
mkdir -p "$folder/meson-private"; : >"$folder/build.ninja"
""",
    "ninja": """
echo ninja >>"$STATE/calls"
cat >"$STATE/ninja-stdin"
sleep "$(cat "$STATE/ninja-seconds" 2>/dev/null || echo 0)"
echo progress
[ -e "$STATE/ninja-fails" ] && exit 1
[ -e "$STATE/ninja-edits" ] && touch "$(cat "$STATE/ninja-edits")"
mkdir -p "$2/runtime/launcher"
cp "$STATE/launcher" "$2/runtime/launcher/penumbra"
""",
}
LAUNCHER = '#!/bin/sh\necho "launched $*"; ls -1 /proc/self/fd | grep -c . >"$STATE/descriptors"; exec "$@"\n'


class SetUp(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="penumbra-test-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.state = self.folder / "state"
        self.tree = self.folder / "tree"
        commands = self.folder / "bin"
        for folder in (self.state, commands, self.tree / "runtime/launcher", self.tree / "runtime/base",
                       self.tree / "shadow", self.tree / "allocator", self.tree / "instrument"):
            folder.mkdir(parents=True)
        for name, body in STAND_INS.items():
            (commands / name).write_text(f"#!/bin/sh\n{body}\n")
            (commands / name).chmod(0o755)
        for name in ("penumbra", "meson.build", "meson_options.txt", "runtime/launcher/install_packages",
                     "runtime/launcher/packages.txt", "runtime/launcher/usage.inc", "runtime/launcher/options_help.awk",
                     "runtime/base/flags.inc"):
            shutil.copy(ROOT / name, self.tree / name)
        (self.state / "launcher").write_text(LAUNCHER)
        (self.state / "launcher").chmod(0o755)
        (self.state / "installed").write_text("".join(f"{name}\n" for name in self.packages()))
        (self.state / "uid").write_text("0\n")
        self.environment = dict(os.environ, PATH=f"{commands}:/usr/bin:/bin", STATE=str(self.state), LC_ALL="C")

    def packages(self):
        lines = (ROOT / "runtime/launcher/packages.txt").read_text().splitlines()
        return [line.split()[0] for line in lines if line and not line.startswith("#")]

    def start(self, *words, **more):
        return subprocess.Popen([self.tree / "penumbra", *words], env=self.environment, text=True,
                                stdin=more.pop("stdin", subprocess.DEVNULL), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, **more)

    def penumbra(self, *words, text=None):
        done = subprocess.run([self.tree / "penumbra", *words], env=self.environment, text=True, input=text or "",
                              capture_output=True, check=False, timeout=60)
        return done

    def calls(self):
        file = self.state / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def set_state(self, name, text=""):
        (self.state / name).write_text(text)

    def test_the_first_call_builds_and_later_calls_do_not(self):
        first = self.penumbra("echo", "hello world")
        self.assertEqual((first.returncode, first.stdout), (0, "launched echo hello world\nhello world\n"))
        self.assertEqual([call.split()[0] for call in self.calls()], ["meson", "ninja"])
        self.assertIn("progress", first.stderr)
        second = self.penumbra("echo")
        self.assertEqual((second.stdout, second.stderr), ("launched echo\n\n", ""))
        self.assertEqual(len(self.calls()), 2)

    def test_a_newer_source_is_built_again_and_only_once(self):
        self.penumbra("true")
        source = self.tree / "shadow/new.cc"
        time.sleep(0.02)
        source.write_text("")
        self.assertEqual(self.penumbra("true").returncode, 0)
        self.assertEqual(self.calls().count("ninja"), 2)
        self.penumbra("true")
        self.assertEqual(self.calls().count("ninja"), 2)

    def test_a_source_edited_during_the_build_is_built_by_the_next_call(self):
        edited = self.tree / "runtime/base/flags.inc"
        self.set_state("ninja-edits", str(edited))
        self.set_state("ninja-seconds", "0.05")
        self.penumbra("true")
        (self.state / "ninja-edits").unlink()
        self.penumbra("true")
        self.assertEqual(self.calls().count("ninja"), 2)

    def test_concurrent_first_calls_build_once_and_all_run(self):
        self.set_state("ninja-seconds", "0.5")
        running = [self.start("echo", str(i)) for i in range(4)]
        for i, process in enumerate(running):
            out, err = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out), (0, f"launched echo {i}\n{i}\n"), err)
        self.assertEqual(self.calls().count("ninja"), 1)

    def test_a_set_up_that_was_killed_is_taken_up_by_the_next_call(self):
        self.set_state("ninja-seconds", "30")
        process = self.start("true", start_new_session=True)
        deadline = time.monotonic() + 20
        while "ninja" not in self.calls() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        self.set_state("ninja-seconds", "0")
        self.assertEqual(self.penumbra("true").returncode, 0)
        self.assertEqual(len([call for call in self.calls() if call.startswith("meson")]), 1)

    def test_a_configuration_that_was_killed_is_done_anew(self):
        (self.tree / "build/meson-private").mkdir(parents=True)
        self.assertEqual(self.penumbra("true").returncode, 0)
        self.assertTrue((self.tree / "build/build.ninja").exists())

    def test_a_failed_build_is_said_and_tried_again(self):
        self.set_state("ninja-fails")
        failed = self.penumbra("true")
        self.assertEqual(failed.returncode, 125)
        self.assertEqual(failed.stdout, "")
        self.assertTrue(failed.stderr.splitlines()[-1].startswith("penumbra: the build failed"), failed.stderr)
        (self.state / "ninja-fails").unlink()
        self.assertEqual(self.penumbra("true").returncode, 0)

    def test_a_failed_configuration_says_why_in_one_line(self):
        self.set_state("meson-fails")
        failed = self.penumbra("true")
        self.assertEqual(failed.returncode, 125)
        self.assertIn("no compiler", failed.stderr.splitlines()[-1])

    def test_missing_packages_are_installed_and_named_with_their_reason(self):
        self.set_state("installed", "g++\n")
        done = self.penumbra("true")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"meson +the build system")
        self.assertNotRegex(done.stderr, r"g\+\+ +the compiler")
        install = [call for call in self.calls() if call.startswith("apt-get install")]
        self.assertEqual(len(install), 1)
        self.assertEqual(set(install[0].split()[4:]), set(self.packages()) - {"g++"})

    def test_without_root_the_command_to_type_is_the_only_line(self):
        self.set_state("installed")
        self.set_state("uid", "1000\n")
        refused = self.penumbra("true")
        self.assertEqual(refused.returncode, 125)
        self.assertEqual(len(refused.stderr.splitlines()), 1, refused.stderr)
        self.assertIn("as root, run: apt-get install g++ meson", refused.stderr)
        self.assertEqual(self.calls(), [])

    def test_when_apt_fails_its_reason_is_in_the_last_line(self):
        self.set_state("installed")
        self.set_state("apt-fails")
        failed = self.penumbra("true")
        self.assertEqual(failed.returncode, 125)
        self.assertIn("E: Unable to fetch some archives", failed.stderr.splitlines()[-1])
        self.assertNotIn("ninja", self.calls())

    def test_apt_gets_a_second_try_with_fresh_lists(self):
        self.set_state("installed")
        self.set_state("apt-fails")
        self.set_state("apt-fails-once")
        done = self.penumbra("true")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("dpkg --configure -a", self.calls())
        self.assertIn("apt-get update", self.calls())

    def test_set_up_reads_nothing_of_the_programs_input(self):
        done = self.penumbra("cat", text="for cat alone\n")
        self.assertEqual(done.stdout, "launched cat\nfor cat alone\n")
        self.assertEqual((self.state / "ninja-stdin").read_text(), "")

    def test_no_descriptor_of_the_set_up_is_left_to_the_program(self):
        self.penumbra("true")
        self.assertEqual((self.state / "descriptors").read_text().strip(), "4")  # 0, 1, 2 and ls's own

    def test_help_version_and_usage_need_no_build(self):
        usage = self.penumbra()
        self.assertEqual(usage.returncode, 125)
        self.assertTrue(usage.stdout.startswith("usage: penumbra [KEY=VALUE...] [--] PROGRAM"), usage.stdout)
        for word in ("--help", "-h"):
            self.assertIn("exitcode=99", self.penumbra(word).stdout)
        self.assertRegex(self.penumbra("--version").stdout, r"^penumbra \d+\.\d+\.\d+\n$")
        self.assertEqual(self.calls(), [])

    def test_the_script_works_through_a_link_and_from_another_folder(self):
        link = self.folder / "elsewhere"
        link.symlink_to(self.tree / "penumbra")
        done = subprocess.run([link, "pwd"], env=self.environment, text=True, cwd="/", capture_output=True, check=False)
        self.assertEqual(done.stdout, "launched pwd\n/\n", done.stderr)
        done = subprocess.run(["./penumbra", "true"], env=self.environment, text=True, cwd=self.tree,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_folder_with_blanks_does_no_harm(self):
        self.tree = self.tree.rename(self.folder / "a tree, here")
        self.assertEqual(self.penumbra("true").returncode, 0)
        self.assertEqual(self.penumbra("true").stderr, "")

    def test_a_checkout_that_cannot_be_written_says_so(self):
        (self.tree / "build").write_text("a file where the folder belongs")
        refused = self.penumbra("true")
        self.assertEqual(refused.returncode, 125)
        self.assertEqual(len(refused.stderr.splitlines()), 1, refused.stderr)
        self.assertIn("cannot write to", refused.stderr)


if __name__ == "__main__":
    tap.main()
