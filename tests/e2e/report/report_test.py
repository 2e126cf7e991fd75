#!/usr/bin/env python3
"""Reports of real programs under the preload: report_test.py ROOT LIBRARY BUGS BUGS_STRIPPED ENDS FAULTS REGIONS PLUGIN

The programs beside this file have one bug a mode. What a report must say is written down here once, and the report is
read again as syzkaller and ClusterFuzz read it (consumers.py).
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
ROOT, LIBRARY, BUGS, STRIPPED, ENDS, FAULTS, REGIONS, PLUGIN = (
    pathlib.Path(word).resolve() for word in sys.argv[1:9])
del sys.argv[1:9]
sys.path.insert(0, str(ROOT / "tests/support"))
sys.path.insert(0, str(ROOT / "tests/e2e/report"))

import consumers  # noqa: E402  (the path is set above)
import tap  # noqa: E402

ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ("MALLOC_PERTURB_", "LD_PRELOAD", "PENUMBRA_OPTIONS", "LD_LIBRARY_PATH")}
RULE = "=" * 66
ROWS = r"(?:[ >][0-9a-f]{16}:(?: (?:[0-9a-f]{2}|--)){16}\n(?: +\^\n)?){5}"


def run(*words, options="", preload=True, **more):
    environment = dict(ENVIRONMENT, PENUMBRA_OPTIONS=options)
    if preload:
        environment["LD_PRELOAD"] = str(LIBRARY)
    return subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors="replace", check=False, timeout=60, env=environment,
                          **more)


def reports(text):
    """The text between the rules, a report each."""
    return [piece for piece in text.split(RULE + "\n") if piece.startswith("BUG: KASAN:")]


class ReportCase(unittest.TestCase):
    maxDiff = None

    def one_report(self, done):
        found = reports(done.stderr)
        self.assertEqual(len(found), 1, done.stderr)
        return found[0]

    def assert_lines(self, report, *patterns):
        """Each pattern is a run of lines; they come in this order."""
        at = 0
        for pattern in patterns:
            match = re.compile(pattern, re.M).search(report, at)
            self.assertIsNotNone(match, f"{pattern!r} in\n{report[at:]}")
            at = match.end()


class WithDebugInformation(ReportCase):
    def test_an_overflow_is_reported_line_by_line(self):
        done = run(BUGS, "overflow")
        self.assertEqual(done.returncode, 99)
        report = self.one_report(done)
        frame = r" \[<[0-9a-f]{16}>\] "
        self.assert_lines(
            report,
            r"\ABUG: KASAN: slab-out-of-bounds in overflow\+0x[0-9a-f]+/0x[0-9a-f]+ \[report_bugs\]\n"
            r"Write of size 44 at addr [0-9a-f]{16} by task report_bugs/\d+\n"
            r"Checked call: memcpy\(\)\n"
            r"\n"
            r"CPU: \d+ UID: \d+ PID: \d+ Comm: report_bugs Penumbra [\d.]+\n"
            r"Call Trace:\n" +
            frame + r"overflow\+0x[0-9a-f]+/0x[0-9a-f]+ \[report_bugs\] \S*bugs\.c:\d+\n" +
            frame + r"main\+0x[0-9a-f]+/0x[0-9a-f]+ \[report_bugs\] \S*bugs\.c:\d+\n",
            r"\nAllocated by task \d+:\n(?: .*\n)*?" + frame + r"make_block\+.* \S*bugs\.c:\d+\n" + frame + r"main\+",
            r"\nThe buggy address belongs to the object at ([0-9a-f]{16})\n"
            r" which belongs to the cache malloc-\d+ of size \d+\n"
            r"The buggy address is located 0 bytes to the right of\n"
            r" allocated 40-byte region \[\1, [0-9a-f]{16}\)\n"
            r"\n"
            r"Memory state around the buggy address:\n" + ROWS + r"\Z")

    def test_the_arrow_stands_under_the_first_bad_byte(self):
        report = self.one_report(run(BUGS, "overflow"))
        guilty, caret = re.search(r"^(>.*)\n( +\^)$", report, re.M).groups()
        row = int(guilty[1:17], 16)
        bad = int(re.search(r"40-byte region \[[0-9a-f]+, ([0-9a-f]+)\)", report).group(1), 16)
        self.assertEqual(len(caret), 3 + 16 + (bad - row) // 8 * 3 + 1)
        self.assertEqual(guilty[len(caret) - 1:][:2], "fc")

    def test_a_use_after_free_has_three_stacks(self):
        report = self.one_report(run(BUGS, "use_after_free"))
        self.assert_lines(report, r"\ABUG: KASAN: slab-use-after-free in use_after_free\+",
                          r"^Read of size 8 at addr", r"^Call Trace:\n.* use_after_free\+.*\n.* main\+",
                          r"^Allocated by task \d+:\n(?:.*\n)*?.* make_block\+", r"^Freed by task \d+:\n(?:.*\n)*?.* drop_block\+",
                          r"located 0 bytes inside of\n freed 40-byte region")

    def test_an_invalid_free_is_inside_its_object(self):
        report = self.one_report(run(BUGS, "invalid_free"))
        self.assert_lines(report, r"\ABUG: KASAN: invalid-free in drop_block\+.*\nFree of addr [0-9a-f]{16} by task",
                          r"located 8 bytes inside of\n allocated 40-byte region")

    def test_a_large_object_is_an_object(self):
        report = self.one_report(run(BUGS, "large"))
        self.assert_lines(report, r"\ABUG: KASAN: slab-out-of-bounds in main\+", r"^Allocated by task \d+:\n(?:.*\n)*?.* make_block\+",
                          r"located 0 bytes to the right of\n allocated 1048576-byte region")

    def test_a_report_inside_realloc_completes(self):
        done = run(BUGS, "inside_realloc")
        self.assertEqual(done.returncode, 99)
        report = self.one_report(done)
        self.assert_lines(report, r"\ABUG: KASAN: (double-free|slab-use-after-free|invalid-free) in main\+", r"^Freed by task")

    def test_a_place_is_reported_once_and_repeats_are_counted(self):
        done = run(BUGS, "repeat")
        self.one_report(done)
        self.assertIn("\npenumbra: 4 more at places that were reported\n", done.stderr)
        self.assertEqual(len(reports(run(BUGS, "repeat", options="multi_shot=1").stderr)), 5)

    def test_code_of_a_closed_plugin_keeps_its_name(self):
        report = self.one_report(run(BUGS, "closed_plugin", PLUGIN))
        self.assert_lines(report, r"^Allocated by task \d+:\n(?:.*\n)*?.* plugin_allocate\+0x[0-9a-f]+/0x[0-9a-f]+ "
                          r"\[libreport_e2e_plugin\.so\] \S*plugin\.c:\d+\n")
        report = self.one_report(run(BUGS, "closed_plugin", PLUGIN, options="symbolize=0"))
        self.assert_lines(report, r"^Allocated by task \d+:\n(?:.*\n)*?.*\[libreport_e2e_plugin\.so\] \(" +
                          re.escape(str(PLUGIN)) + r"\+0x[0-9a-f]+, build-id [0-9a-f]{40}, unloaded since\)\n")

    def test_without_the_helper_frames_have_module_offset_and_build_id(self):
        report = self.one_report(run(BUGS, "overflow", options="symbolize=0"))
        build_id = re.search(r"Build ID: ([0-9a-f]+)",
                             subprocess.run(["readelf", "-n", str(BUGS)], capture_output=True, text=True).stdout).group(1)
        self.assert_lines(report, r"^ \[<[0-9a-f]{16}>\] sub_[0-9a-f]{8}\+0x[0-9a-f]+/0x[0-9a-f]+ \[report_bugs\] "
                          r"\(" + re.escape(str(BUGS)) + r"\+0x[0-9a-f]+, build-id " + build_id)


class Stripped(ReportCase):
    """A fortified program without debug information and without symbols."""

    def test_it_is_what_it_says(self):
        symbols = subprocess.run(["nm", "-D", str(STRIPPED)], capture_output=True, text=True, check=True).stdout
        self.assertIn("__memcpy_chk", symbols)
        self.assertIn("no symbols", subprocess.run(["nm", str(STRIPPED)], capture_output=True, text=True).stderr)

    def test_an_overflow_through_memcpy_chk_has_its_allocation_stack(self):
        done = run(STRIPPED, "overflow_of_promise")
        self.assertEqual(done.returncode, 99)
        report = self.one_report(done)
        frame = r" \[<[0-9a-f]{16}>\] sub_[0-9a-f]{8}\+0x[0-9a-f]+/0x[0-9a-f]+ \[report_bugs_stripped\] \(\S+\+0x[0-9a-f]+, build-id [0-9a-f]{40}.*\)\n"
        self.assert_lines(report, r"\ABUG: KASAN: slab-out-of-bounds in sub_[0-9a-f]{8}\+.* \[report_bugs_stripped\]\n"
                          r"Write of size 44 at addr .*\nChecked call: __memcpy_chk\(\)\n",
                          r"^Call Trace:\n" + frame, r"^Allocated by task \d+:\n(?:.*\n)*?" + frame + frame,
                          r"located 0 bytes to the right of\n allocated 40-byte region")

    def test_a_second_free_has_the_stacks_of_allocation_and_first_free(self):
        done = run(STRIPPED, "double_free")
        self.assertEqual(done.returncode, 99)
        report = self.one_report(done)
        frame = r" \[<[0-9a-f]{16}>\] sub_[0-9a-f]{8}\+.*\[report_bugs_stripped\].*\n"
        self.assert_lines(report, r"\ABUG: KASAN: double-free in sub_[0-9a-f]{8}\+.*\nFree of addr",
                          r"^Call Trace:\n(?:.*\n)*?" + frame, r"^Allocated by task \d+:\n(?:.*\n)*?" + frame,
                          r"^Freed by task \d+:\n(?:.*\n)*?" + frame, r"inside of\n freed 40-byte region")


class Consumers(ReportCase):
    def test_syzkaller_finds_title_and_stacks(self):
        for program, mode, word, function in ((BUGS, "overflow", "slab-out-of-bounds", "overflow"),
                                              (BUGS, "use_after_free", "slab-use-after-free", "use_after_free")):
            text = run(program, mode).stderr
            title = consumers.SYZKALLER_TITLE.search(text)
            self.assertEqual(title.group(1, 2), (word, function))
            stacks = consumers.syzkaller_stacks(text)
            self.assertEqual(stacks["Call Trace:"][0], function)
            self.assertIn("make_block", stacks["Allocated by task N:"])

    def test_syzkaller_finds_frees(self):
        text = run(BUGS, "double_free").stderr
        self.assertEqual(consumers.SYZKALLER_FREE_TITLE.search(text).group(1, 2), ("double-free", "drop_block"))
        stacks = consumers.syzkaller_stacks(text)
        self.assertIn("drop_block", stacks["Freed by task N:"])
        self.assertIn("make_block", stacks["Allocated by task N:"])

    def test_syzkaller_finds_nothing_corrupted_in_stripped_programs(self):
        for mode in ("overflow_of_promise", "double_free"):
            consumers.syzkaller_stacks(run(STRIPPED, mode).stderr)

    def test_clusterfuzz_finds_address_function_size_and_frames(self):
        text = run(BUGS, "overflow").stderr
        self.assertEqual(consumers.CLUSTERFUZZ_FUNCTION.search(text).group(1, 3), ("slab-out-of-bounds", "overflow"))
        self.assertEqual(consumers.CLUSTERFUZZ_ACCESS.search(text).group(1, 2), ("Write", "44"))
        frames = consumers.clusterfuzz_frames(text)
        self.assertEqual([frame[0] for frame in frames[:2]], ["overflow", "main"])
        for function, offset, size, module in frames[:2]:
            self.assertTrue(0 < offset <= size, function)
            self.assertEqual(module, "report_bugs")


class Regions(ReportCase):
    """What the kernel calls vmalloc-out-of-bounds has three names here, also where only the processor noticed."""

    MADE = r"^Allocated by task \d+:\n(?:.*\n)*?.* make_area\+.*\S*regions\.c:\d+\n"
    DROPPED = r"^Freed by task \d+:\n(?:.*\n)*?.* drop_area\+.*\S*regions\.c:\d+\n"
    REGION = r"^The buggy address belongs to a (freed )?2-page vmalloc region starting at 0x[0-9a-f]+ allocated at \S+ \[\S+\]\n"

    def test_past_the_requested_bytes(self):
        done = run(REGIONS, "tail")
        self.assertEqual(done.returncode, 99)
        self.assert_lines(self.one_report(done), r"\ABUG: KASAN: vmalloc-out-of-bounds in main\+.*\nWrite of size 5 at",
                          self.MADE, self.REGION, r"located 0 bytes to the right of\n allocated 5000-byte region",
                          r"^Memory state around the buggy address:\n" + ROWS)

    def test_in_the_guard(self):
        done = run(REGIONS, "guard")
        self.assertEqual(done.returncode, -11)
        self.assert_lines(self.one_report(done), r"\ABUG: KASAN: vmalloc-guard in read_byte\+.*\nRead at addr", self.MADE,
                          self.REGION, r"located 3292 bytes to the right of\n allocated 5000-byte region")

    def test_after_it_was_freed(self):
        done = run(REGIONS, "freed")
        self.assertEqual(done.returncode, 99)
        self.assert_lines(self.one_report(done), r"\ABUG: KASAN: vmalloc-use-after-free in main\+", self.MADE, self.DROPPED,
                          self.REGION, r"located 0 bytes inside of\n freed 5000-byte region")

    def test_after_it_was_purged(self):
        done = run(REGIONS, "purged", options="retain=0")
        self.assertEqual(done.returncode, -11)
        self.assert_lines(self.one_report(done), r"\ABUG: KASAN: vmalloc-use-after-free in read_byte\+", self.MADE,
                          self.DROPPED, self.REGION, r"located 10 bytes inside of\n freed 5000-byte region")

    def test_bad_frees(self):
        for mode, word in (("double_free", "double-free"), ("interior_free", "invalid-free"), ("foreign_free", "invalid-free")):
            with self.subTest(mode):
                done = run(REGIONS, mode)
                self.assertEqual(done.returncode, 99)
                self.assert_lines(self.one_report(done), r"\ABUG: KASAN: " + word + r" in drop_area\+.*\nFree of addr")


class HardPlaces(ReportCase):
    def test_a_report_in_a_signal_handler_on_a_small_stack_completes(self):
        done = run(BUGS, "in_handler")
        self.assertEqual(done.returncode, 99, done.stderr)
        self.assert_lines(self.one_report(done), r"\ABUG: KASAN: slab-out-of-bounds in overflow\+",
                          r" overflow_in_handler\+", r"^Memory state")

    def test_two_threads_at_once_both_report(self):
        done = run(BUGS, "two_threads")
        self.assertEqual(done.returncode, 99)
        self.assertEqual(len(reports(done.stderr)), 2, done.stderr)
        self.assertEqual(sorted(re.findall(r"^BUG: KASAN: \S+ in (\w+)", done.stderr, re.M)),
                         ["other_overflow_in_thread", "overflow"])
        self.assertEqual(done.stderr.count(RULE), 4)

    def test_with_stdio_closed_the_log_has_it(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run(BUGS, "closed_stdio", options=f"log_path={folder}/log.%p")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (99, "", ""))
            logs = list(pathlib.Path(folder).iterdir())
            self.assertEqual(len(logs), 1)
            self.assertTrue(re.fullmatch(r"log\.\d+", logs[0].name))
            self.assertEqual(len(reports(logs[0].read_text())), 1)

    def test_with_stdio_closed_and_no_log_the_status_still_tells(self):
        self.assertEqual(run(BUGS, "closed_stdio").returncode, 99)
        self.assertEqual(run(BUGS, "closed_stdio", options="exitcode=0").returncode, 0)

    def test_a_log_that_cannot_be_opened_goes_to_stderr(self):
        done = run(BUGS, "overflow", options="log_path=/nonexistent/log")
        self.assertIn("penumbra: cannot open log_path '/nonexistent/log' (errno 2): the report goes to stderr\n", done.stderr)
        self.one_report(done)

    def test_each_forked_child_has_its_own_log(self):
        with tempfile.TemporaryDirectory() as folder:
            run(BUGS, "child_reports", options=f"log_path={folder}/%p")
            (log,) = pathlib.Path(folder).iterdir()
            self.assertIn(f"/{log.name}\n", log.read_text().splitlines(keepends=True)[2])

    def test_the_program_sees_no_child(self):
        done = run(BUGS, "no_child_seen")
        self.one_report(done)
        self.assertEqual((done.returncode, done.stdout), (99, "waitpid -1 errno ECHILD\n"))
        done = run(BUGS, "no_child_seen", options="exitcode=0")
        self.assertEqual(done.returncode, 0)

    def test_no_descriptor_is_left_open(self):
        done = run(BUGS, "descriptors", options="exitcode=0")
        self.one_report(done)
        self.assertEqual(done.returncode, 0)


class Helper(ReportCase):
    """What becomes of a report when the helper process is not what it should be."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def helper(self, root, text):
        """A copy of the library with a helper of ours beside it; answers the library's path."""
        library = pathlib.Path(str(root) + str(self.folder / "lib/libpenumbra.so"))
        library.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(LIBRARY, library)
        program = library.parent / "launcher/penumbra"
        program.parent.mkdir()
        program.write_text(text)
        program.chmod(0o755)
        return library

    def overflow(self, library, *words):
        environment = dict(ENVIRONMENT, LD_PRELOAD=str(library))
        begin = time.monotonic()
        done = subprocess.run([str(BUGS), *(words or ("overflow",))], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, check=False, timeout=60, env=environment)
        return done, time.monotonic() - begin

    def assert_complete_without_lines(self, done):
        self.assertEqual(done.returncode, 99)
        self.assert_lines(self.one_report(done), r"^Call Trace:\n \[<[0-9a-f]{16}>\] sub_[0-9a-f]{8}\+.* \(" +
                          re.escape(str(BUGS)) + r"\+0x[0-9a-f]+, build-id [0-9a-f]{40}", r"^Allocated by", r"^Memory state")

    def test_one_that_does_not_answer_is_given_up_and_killed(self):
        marker = self.folder / "pid"
        library = self.helper("", f"#!/bin/sh\necho $$ > {marker}\nexec sleep 1000\n")
        done, seconds = self.overflow(library)
        self.assert_complete_without_lines(done)
        self.assertGreater(seconds, 1.9)
        self.assertLess(seconds, 20)  # two, on a machine that has nothing else to do
        pid = int(marker.read_text())
        for _ in range(100):
            state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
            if state in ("", "Z"):
                break
            time.sleep(0.1)
        self.assertIn(state, ("", "Z"))

    def test_one_that_dies_or_talks_nonsense_changes_nothing(self):
        for number, text in enumerate(("#!/bin/sh\nexit 1\n", "#!/nonexistent\n", "#!/bin/sh\nread a\necho; echo; echo x\n")):
            with self.subTest(text):
                self.folder = self.folder / str(number)
                done, seconds = self.overflow(self.helper("", text))
                self.assert_complete_without_lines(done)

    def test_it_starts_with_nothing_of_the_programs(self):
        seen = self.folder / "seen"
        library = self.helper("", f"#!/bin/sh\n(echo \"$@\"; env; ls /proc/self/fd; grep Sig /proc/$$/status) > {seen}\nexit 1\n")
        done, _ = self.overflow(library)
        self.assert_complete_without_lines(done)
        text = seen.read_text()
        self.assertEqual(text.splitlines()[0], "symbolize")
        self.assertNotIn("LD_PRELOAD", text)
        self.assertNotIn("\n9", text, "no high descriptor of ours")
        self.assertIn("SigBlk:\t0000000000000000", text)
        self.assertIn("SigIgn:\t0000000000000000", text)

    @unittest.skipIf(os.geteuid() != 0, "only root may chroot")
    def test_one_from_another_root_is_not_started(self):
        library = self.helper("", "#!/bin/sh\nexit 1\n")
        root = self.folder / "root"
        other = self.helper(root, "").parent / "launcher/penumbra"
        subprocess.run(["gcc", "-static", "-x", "c", "-o", other, "-"], check=True, text=True,
                       input='#include <fcntl.h>\nint main(void) { return creat("/ran", 0644) < 0; }')
        done, _ = self.overflow(library, "chroot", str(root))
        self.assert_complete_without_lines(done)
        self.assertFalse((root / "ran").exists())


class Status(ReportCase):
    def ends(self, way, *more, options=""):
        return run(ENDS, way, *more, options=options)

    def test_every_way_to_end_has_exitcode_after_a_report_and_its_own_without(self):
        for way in ("return", "exit", "_exit", "_Exit", "quick_exit", "syscall", "pthread_exit"):
            with self.subTest(way):
                plain = run(ENDS, way, preload=False)
                self.assertEqual(self.ends(way).returncode, plain.returncode)
                reported = self.ends(way, "report")
                self.one_report(reported)
                self.assertEqual(reported.returncode, 99)
                self.assertEqual(self.ends(way, "report", options="exitcode=7").returncode, 7)
                self.assertEqual(self.ends(way, "report", options="exitcode=0").returncode, plain.returncode)

    def test_output_on_the_way_out_is_the_same(self):
        for way in ("return", "exit", "_exit", "_Exit", "quick_exit", "syscall", "pthread_exit"):
            with self.subTest(way):
                plain = run(ENDS, way, preload=False).stdout
                self.assertEqual(self.ends(way).stdout, plain)
                self.assertEqual(self.ends(way, "report").stdout, plain)

    STATISTICS = ("live areas", "live bytes", "lazy areas", "lazy bytes", "retained areas", "retained bytes",
                  "shadow pages", "shadow pages dying", "shadow pages pinned", "flushes", "pages flushed",
                  "purge passes", "purge chunks", "longest chunk, ns", "late faults lost", "heap arenas",
                  "heap arena bytes", "heap units taken", "quarantined bytes", "blocks lost", "thread stacks lent",
                  "thread stacks cached", "thread stacks taken", "thread stacks reused", "modules",
                  "modules rewritten", "modules missing", "modules refused", "areas released", "ioctls not known", "reports",
                  "repeated faults", "faults not reported")

    def statistics(self, text):
        """The figures of the one process that says them in this text."""
        self.assertEqual(len(re.findall(r"^penumbra: statistics of process \d+$", text, re.M)), 1, text)
        lines = text[text.index("penumbra: statistics of process"):].splitlines()[1:]
        self.assertEqual(len(lines), len(self.STATISTICS) + 1, text)
        depot = [line for line in lines if line.startswith("stack depot: ")]
        self.assertRegex(depot[0], r"^stack depot: \d+ stacks in \d+ of \d+ bytes, \d+ wasted, 0 stacks lost$")
        lines.remove(depot[0])
        figures = {}
        for line in lines:
            match = re.fullmatch(r"([a-z, ]+): +(\d+)", line)
            self.assertIsNotNone(match, line)
            figures[match[1]] = int(match[2])
        self.assertEqual(tuple(figures), self.STATISTICS)
        return figures

    def test_statistics_are_complete_whichever_way_the_process_ends(self):
        for way in ("return", "exit", "_exit", "_Exit", "quick_exit", "pthread_exit"):
            with self.subTest(way):
                figures = self.statistics(self.ends(way, options="stats=1").stderr)
                self.assertEqual(figures["reports"], 0)
                done = self.ends(way, "report", options="stats=1")
                figures = self.statistics(done.stderr)
                self.assertEqual((figures["reports"], done.returncode), (1, 99))
                for name in ("live areas", "live bytes", "shadow pages", "heap arenas", "heap units taken"):
                    self.assertGreater(figures[name], 0, name)
                self.assertGreater(figures["heap arena bytes"], 1 << 20)
                self.assertNotIn("stack depot: 0 stacks", done.stderr)

    def test_statistics_count_faults_that_came_again(self):
        figures = self.statistics(run(BUGS, "repeat", options="stats=1").stderr)
        self.assertEqual(figures["reports"], 1)
        self.assertGreater(figures["repeated faults"], 0)

    def test_statistics_are_said_in_a_panic_too_and_never_unasked(self):
        self.assertEqual(self.statistics(self.ends("return", "report", options="fault=panic:stats=1").stderr)["reports"], 1)
        self.assertNotIn("statistics", self.ends("return", "report").stderr)

    def test_statistics_go_where_reports_go(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.ends("return", options=f"stats=1:log_path={folder}/log")
            self.assertEqual(done.stderr, "")
            self.statistics(pathlib.Path(folder, "log").read_text())

    def test_a_report_in_an_exit_handler_counts(self):
        done = self.ends("return", "late")
        self.one_report(done)
        self.assertEqual(done.returncode, 99)

    def test_death_by_a_signal_stays(self):
        for way, signal in (("abort", -6), ("kill", -15)):
            self.assertEqual(self.ends(way, "report").returncode, signal)

    def test_a_child_decides_for_itself(self):
        done = run(BUGS, "child_reports")
        self.assertEqual((done.returncode, done.stdout), (5, "child 99\n"))
        done = run(BUGS, "parent_reports")
        self.assertEqual((done.returncode, done.stdout), (99, "child 3\n"))

    def test_panic_ends_at_the_first_report_and_flushes_nothing(self):
        for options in ("fault=panic", "halt_on_error=1"):
            done = self.ends("return", "report", options=options)
            self.one_report(done)
            self.assertEqual((done.returncode, done.stdout), (99, ""))
        self.assertEqual(self.ends("return", "report", options="fault=panic:exitcode=3").returncode, 3)
        self.assertEqual(self.ends("return", "report", options="fault=panic:exitcode=0").returncode, -6)

    def test_panic_on_write_lets_reads_pass(self):
        done = run(BUGS, "use_after_free", options="fault=panic_on_write:exitcode=3")
        self.assertEqual(done.returncode, 3)
        done = run(BUGS, "repeat", options="fault=panic_on_write:multi_shot=1")
        self.assertEqual(len(reports(done.stderr)), 1)


class Signals(ReportCase):
    def fault(self, mode, **more):
        return run(FAULTS, mode, **more)

    def test_faults_without_a_handler_are_reported_and_kill_as_before(self):
        for mode, signal, word, access in (
                ("null", -11, "null-ptr-deref in write_null", "Write at addr 0000000000000018"),
                ("non_canonical", -11, "wild-memory-access in main", "Write at addr dead000000001234"),
                ("shadow", -11, "wild-memory-access in main", "Read at addr 0000000090000000"),
                ("unmapped", -11, "user-memory-access in main", "Read at addr 00007"),
                ("overflow", -11, "stack-overflow in recurse", "Write at addr 00007"),
                ("bus", -7, "bus-error in main", "Read at addr 00007")):
            with self.subTest(mode):
                done = self.fault(mode)
                self.assertEqual(done.returncode, signal)
                self.assert_lines(self.one_report(done), r"\ABUG: KASAN: " + word + r"\+", "^" + access)

    def test_an_overflowed_stack_shows_who_recursed(self):
        self.assert_lines(self.one_report(self.fault("overflow")), r"^Call Trace:\n(?: .* recurse\+0x[0-9a-f]+/0x.*\n){64}\n")

    def test_a_thread_that_overflows_its_stack_is_reported_as_such(self):
        done = self.fault("thread_overflow")
        self.assertEqual(done.returncode, -11)
        self.assert_lines(self.one_report(done), r"\ABUG: KASAN: stack-overflow in recurse\+",
                          r"^Call Trace:\n(?: .* recurse\+0x[0-9a-f]+/0x.*\n){64}\n")

    def test_threads_see_no_alternate_stack_but_their_own_and_leave_none_behind(self):
        done = self.fault("thread_stacks")
        self.assertEqual((done.returncode, done.stderr), (5, ""))
        self.assertEqual(done.stdout, self.fault("thread_stacks", preload=False).stdout)

    def test_a_fault_in_the_shadow_names_the_range_that_was_meant(self):
        self.assert_lines(self.one_report(self.fault("shadow")),
                          r"^KASAN: maybe wild-memory-access in range \[0x0000000080040000-0x0000000080040007\]\n")

    def test_a_signal_that_was_sent_is_no_fault(self):
        done = self.fault("sent")
        self.assertEqual((done.returncode, done.stderr), (-11, ""))

    def test_the_programs_handler_runs_after_the_report_and_the_status_stays(self):
        for mode, said in (("handled_null", "handler 11 0x18\n"), ("handled_plain", "plain 11 0\n")):
            done = self.fault(mode)
            self.assert_lines(self.one_report(done), r"\ABUG: KASAN: null-ptr-deref in write_null")
            self.assertEqual((done.returncode, done.stdout), (5, said))

    def test_null_pages_that_a_program_lives_on_can_go_unreported(self):
        done = self.fault("handled_null", options="handled_faults=0")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (5, "handler 11 0x18\n", ""))

    def test_null_pages_that_generated_code_touches_and_the_program_handles_are_its_own_business(self):
        done = self.fault("handled_generated")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (5, "handler 11 0\n", ""))

    def test_page_protection_that_the_program_handles_is_its_own_business(self):
        done = self.fault("handled_protection")
        self.assertEqual((done.returncode, done.stderr), (5, ""))

    def test_queries_show_the_programs_own_dispositions(self):
        self.assertEqual(self.fault("queries").stdout, self.fault("queries", preload=False).stdout)

    def test_a_one_shot_handler_runs_once_and_the_next_fault_is_still_reported(self):
        done = self.fault("reset_hand")
        plain = self.fault("reset_hand", preload=False)
        self.assertEqual((done.returncode, done.stdout), (plain.returncode, plain.stdout))
        self.assertEqual(len(reports(done.stderr)), 2)

    def test_a_handler_on_its_own_stack_survives_an_overflow(self):
        done = self.fault("own_stack")
        plain = self.fault("own_stack", preload=False)
        self.assertEqual(re.sub("0x[0-9a-f]+", "", done.stdout), re.sub("0x[0-9a-f]+", "", plain.stdout))
        self.assertEqual(done.returncode, 5)

    def test_a_vfork_child_cannot_take_its_parents_handler_away(self):
        done = self.fault("vfork")
        self.assertEqual((done.returncode, done.stdout),
                         (5, "child died of 11\nparent jump_back 0x4\nhandler 11 0x20\n"))

    def test_children_inherit_ignored_signals_and_no_handlers(self):
        for mode in ("spawn_ignored", "spawn_handled"):
            done = self.fault(mode)
            self.assertEqual((done.returncode, done.stdout), (0, self.fault(mode, preload=False).stdout))


if __name__ == "__main__":
    tap.main()
