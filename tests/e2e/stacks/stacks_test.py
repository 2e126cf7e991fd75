#!/usr/bin/env python3
"""Threads on stacks of the region allocator: stacks_test.py ROOT LIBRARY PROGRAM NESTED

What a mode of the program prints, and how it ends, must be the same as without Penumbra; what is a bug is reported.
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
ROOT, LIBRARY, PROGRAM, NESTED = (pathlib.Path(word).resolve() for word in sys.argv[1:5])
del sys.argv[1:5]
sys.path.insert(0, str(ROOT / "tests/support"))

import tap  # noqa: E402  (the path is set above)

ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ("MALLOC_PERTURB_", "LD_PRELOAD", "PENUMBRA_OPTIONS", "LD_LIBRARY_PATH")}


def run(*words, options=""):
    """Without rewriting, which other tests are about: libc's entry points check what these programs do wrong."""
    environment = dict(ENVIRONMENT, LD_PRELOAD=str(LIBRARY), PENUMBRA_OPTIONS="rewrite=0:" + options)
    return finish(words, environment)


def alone(*words):
    """Without glibc's cache, from which a thread may get a larger stack than it asked for."""
    return finish(words, dict(ENVIRONMENT, GLIBC_TUNABLES="glibc.pthread.stack_cache_size=0"))


def finish(words, environment):
    return subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors="replace", check=False, timeout=120, env=environment)


class StackCase(unittest.TestCase):
    maxDiff = None

    def assert_lines(self, report, *patterns):
        at = 0
        for pattern in patterns:
            match = re.compile(pattern, re.M).search(report, at)
            self.assertIsNotNone(match, f"{pattern!r} in\n{report[at:]}")
            at = match.end()

    def assert_unchanged(self, *words):
        natively, checked = alone(*words), run(*words)
        self.assertEqual((natively.returncode, natively.stdout), (0, checked.stdout), checked.stderr)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))

    def statistic(self, text, name):
        return int(re.search(rf"^{name}: +(\d+)$", text, re.M).group(1))


class Bugs(StackCase):
    def assert_use_after_exit(self, mode, freed_at):
        done = run(PROGRAM, mode)
        self.assertEqual(done.returncode, 99, done.stderr)
        self.assert_lines(
            done.stderr,
            r"^BUG: KASAN: stack-use-after-exit in read_leaked\+",
            r"^Read of size 8 at addr [0-9a-f]{16} by task ",
            r"^Allocated by task \d+:\n .* main\+0x",
            r"^Freed by task \d+:\n" + freed_at,
            r"^The buggy address belongs to a freed 2048-page stack region starting at 0x[0-9a-f]+ allocated at main\+",
            r"^The buggy address is located 83\d{5} bytes inside of\n freed 8388608-byte region ",
            r"^>[0-9a-f]{16}:.* e5")

    def test_a_use_after_a_join_shows_who_created_and_who_joined(self):
        self.assert_use_after_exit("joined", r" .* main\+0x")

    def test_a_use_of_a_detached_threads_stack_is_reported_when_the_kernel_has_left_it(self):
        self.assert_use_after_exit("detached", r"\(stack is not available\)\n")

    def test_an_overflow_names_the_guard_and_the_program_dies_as_it_does_alone(self):
        for mode, pages, guard in (("overflow", 2048, 0x1000), ("small_overflow", 16, 0x10000)):
            with self.subTest(mode):
                done = run(PROGRAM, mode)
                self.assertEqual((done.returncode, alone(PROGRAM, mode).returncode), (-11, -11))
                self.assert_lines(
                    done.stderr,
                    r"^BUG: KASAN: stack-overflow in use_up\+",
                    r"^Allocated by task \d+:\n .* create_with\+0x",
                    rf"^The buggy address belongs to a {pages}-page stack region starting at ",
                    r"^The thread has used it up, down to its guard \[[0-9a-f]{16}, [0-9a-f]{16}\)$",
                    rf"^The buggy address is located \d+ bytes to the left of\n allocated {pages * 4096}-byte region ")
                low, high = re.search(r"its guard \[([0-9a-f]+), ([0-9a-f]+)\)", done.stderr).groups()
                self.assertEqual(int(high, 16) - int(low, 16), guard)

    def test_a_handled_overflow_is_reported_and_changes_nothing_else(self):
        done = run(PROGRAM, "recover")
        self.assertEqual((done.returncode, done.stdout), (0, "recovered, own signal stack in force\n"))
        self.assertEqual(done.stdout, alone(PROGRAM, "recover").stdout)
        self.assertIn("BUG: KASAN: stack-overflow in use_up", done.stderr)
        self.assertEqual(run(PROGRAM, "recover", options="handled_faults=0").stderr, "")


class Life(StackCase):
    def test_threads_see_the_sizes_and_guards_that_glibc_would_give(self):
        self.assert_unchanged(PROGRAM, "describe")

    def test_threads_may_end_in_every_way(self):
        self.assert_unchanged(PROGRAM, "ways")

    def test_what_ended_is_used_again(self):
        done = run(PROGRAM, "ways", options="stats=1")
        taken = self.statistic(done.stderr, "thread stacks taken")
        self.assertEqual(taken, 2000 - 2000 // 8)  # thrd_create is libc's own affair
        self.assertGreater(self.statistic(done.stderr, "thread stacks reused"), taken // 2)
        # Detached threads that the kernel has not left yet, and nothing else.
        self.assertLess(self.statistic(done.stderr, "thread stacks lent"), 500)

    def test_a_fork_child_reads_other_threads_stacks_and_creates_threads(self):
        self.assert_unchanged(PROGRAM, "fork")

    def test_a_thread_may_map_and_protect_its_own_stack(self):
        self.assert_unchanged(PROGRAM, "map")

    def test_executable_stacks_stay_executable(self):
        self.assert_unchanged(NESTED)
        self.assertEqual(self.statistic(run(NESTED, options="stats=1").stderr, "thread stacks taken"), 0)

    def test_stacks_0_leaves_them_to_glibc(self):
        done = run(PROGRAM, "ways", options="stacks=0:stats=1")
        self.assertEqual((done.returncode, self.statistic(done.stderr, "thread stacks taken")), (0, 0))
        self.assertEqual(run(PROGRAM, "joined", options="stacks=0").stderr, "")


DEEP_PYTHON = """
import sys, threading
sys.setrecursionlimit(20000)
found = []
def down(n): return 0 if n == 0 else 1 + down(n - 1)
for size in (0, 1 << 20, 16 << 20):
    threading.stack_size(size)
    for _ in range(5):
        threads = [threading.Thread(target=lambda: found.append(down(2000))) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
print(len(found), sum(found))
"""
# Worker threads whose stacks end where v8 thinks they do.
DEEP_NODE = """
const {Worker, isMainThread, parentPort} = require("worker_threads");
if (isMainThread) {
  let ended = 0;
  for (let i = 0; i < 4; i++) {
    new Worker(__filename).on("message", (m) => { if (++ended == 4) console.log(m); });
  }
} else {
  const down = (n) => n == 0 ? 0 : 1 + down(n - 1);
  let overflowed = false;
  try { (function on() { on(); })(); } catch (e) { overflowed = e instanceof RangeError; }
  parentPort.postMessage([down(2000), overflowed]);
}
"""
# A JVM maps its guard zones into its threads' stacks, and takes the faults there for overflows.
DEEP_JAVA = """
public class Deep {
  static int down(int n) { return 1 + down(n + 1); }
  public static void main(String[] arguments) throws Exception {
    int[] overflows = {0};
    for (int round = 0; round < 3; round++) {
      Thread[] threads = new Thread[8];
      for (int i = 0; i < threads.length; i++) {
        threads[i] = new Thread(() -> {
          try { down(0); } catch (StackOverflowError e) { synchronized (overflows) { overflows[0]++; } }
        });
        threads[i].start();
      }
      for (Thread thread : threads) thread.join();
    }
    System.out.println(overflows[0]);
  }
}
"""


class Interpreters(StackCase):
    def test_python_recurses_in_threads_of_all_sizes(self):
        self.assert_unchanged(sys.executable, "-c", DEEP_PYTHON)

    @unittest.skipUnless(shutil.which("node"), "node is not installed")
    def test_node_finds_the_end_of_its_workers_stacks(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "deep.js")
            script.write_text(DEEP_NODE)
            self.assert_unchanged(shutil.which("node"), script)

    @unittest.skipUnless(shutil.which("javac"), "no Java compiler is installed")
    def test_java_overflows_are_its_own_affair(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "Deep.java").write_text(DEEP_JAVA)
            subprocess.run(["javac", "-d", folder, f"{folder}/Deep.java"], check=True, env=ENVIRONMENT)
            self.assert_unchanged(shutil.which("java"), "-Xmx64m", "-cp", folder, "Deep")


if __name__ == "__main__":
    tap.main()
