#!/usr/bin/env python3
"""What a program notices of the launcher, and what it does not: launch_test.py ROOT LAUNCHER LIBRARY EXEC_FAMILY

Programs of the system, small scripts, and programs compiled here run under the launcher and beside that on their own;
apart from what is promised, there is no difference.
"""

import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT, LAUNCHER, LIBRARY, EXEC_FAMILY = (pathlib.Path(word).resolve() for word in sys.argv[1:5])
del sys.argv[1:5]
sys.path.insert(0, str(ROOT / "tests/support"))

import tap  # noqa: E402  (the path is set above)

# meson test sets MALLOC_PERTURB_, which is glibc's malloc's, and would be one more difference.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ("MALLOC_PERTURB_", "LD_PRELOAD", "PENUMBRA_OPTIONS", "LD_LIBRARY_PATH")}

# Says whether the library is in its environment and in its memory.
ASKER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
  const char* preload = getenv("LD_PRELOAD");
  char line[4096];
  int mapped = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps) != NULL) mapped |= strstr(line, "/libpenumbra.so") != NULL;
  fclose(maps);
  printf("%s %s\n", preload != NULL && strstr(preload, "libpenumbra.so") != NULL ? "named" : "unnamed",
         mapped ? "mapped" : "unmapped");
  fflush(stdout);
  return 7;
}
"""


def run(*words, **more):
    more.setdefault("env", ENVIRONMENT)
    return subprocess.run([str(word) for word in words], stdin=more.pop("stdin", subprocess.DEVNULL),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=120, **more)


def penumbra(*words, **more):
    return run(LAUNCHER, *words, **more)


def result(done):
    return done.returncode, done.stdout, done.stderr


class Scratch(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="penumbra-test-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def script(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def compile(self, name, source, compiler, *flags):
        """The program, or a skip where the compiler or a library it needs is not installed."""
        if shutil.which(compiler) is None:
            self.skipTest(f"no {compiler}")
        path = self.folder / name
        file = self.folder / f"{name}.c"
        file.write_text(source)
        done = run(compiler, *flags, file, "-o", path)
        if done.returncode != 0:
            self.skipTest(f"{compiler} {' '.join(flags)} does not link here")
        return path

    def only_line(self, done):
        lines = done.stderr.decode().splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        return lines[0]


class PassesThrough(Scratch):
    def test_exit_status(self):
        for status in (0, 1, 2, 42, 98, 126, 127, 255):
            self.assertEqual(result(penumbra("sh", "-c", f"exit {status}")), (status, b"", b""))

    def test_death_by_signal(self):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGABRT, signal.SIGPIPE, signal.SIGINT):
            self.assertEqual(penumbra("sh", "-c", f"kill -{number.value} $$").returncode, -number)

    def test_signals_sent_from_outside_arrive(self):
        process = subprocess.Popen([LAUNCHER, "sh", "-c", 'trap "echo caught; exit 5" USR1; echo ready; while :; do sleep 0.05; done'],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=ENVIRONMENT)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.send_signal(signal.SIGUSR1)
        out, _ = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (5, b"caught\n"))

    def test_input_and_both_outputs_byte_by_byte(self):
        data = os.urandom(200_000)
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.seek(0)
            done = penumbra("sh", "-c", "tee /dev/stderr", stdin=file)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, data, data))

    def test_the_process_is_the_same(self):
        process = subprocess.Popen([LAUNCHER, "sh", "-c", "echo $$"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   env=ENVIRONMENT)
        out, _ = process.communicate(timeout=60)
        self.assertEqual(int(out), process.pid)

    def test_arguments_whatever_they_look_like(self):
        words = ["", "a b", "--help", "junk=0", "--", "*", "\n", "-", "é"]
        done = penumbra("printf", "[%s]", *words)
        self.assertEqual(done.stdout.decode(), "".join(f"[{word}]" for word in words))

    def test_argument_zero_is_what_was_typed(self):
        program = self.compile("zero", '#include <stdio.h>\nint main(int c, char** v) { puts(v[0]); return c - c; }', "gcc")
        self.assertEqual(penumbra("zero", env=dict(ENVIRONMENT, PATH=f"{self.folder}")).stdout, b"zero\n")
        self.assertEqual(penumbra(program).stdout.decode(), f"{program}\n")

    def test_the_environment_but_for_two_variables(self):
        def entries(done):
            return sorted(line for line in done.stdout.decode().split("\0")
                          if not line.startswith(("LD_PRELOAD=", "PENUMBRA_OPTIONS=")))
        native = run("env", "-0")
        self.assertEqual(entries(penumbra("junk=0", "env", "-0")), entries(native))
        names = {line.split("=")[0] for line in penumbra("env", "-0").stdout.decode().split("\0")}
        self.assertNotIn("PENUMBRA_OPTIONS", names, "no options, no variable")

    def test_descriptors_and_masks(self):
        question = "ls -l /proc/self/fd | wc -l; grep -E '^Sig(Blk|Ign)' /proc/self/status; ulimit -a; umask; pwd"
        read, write = os.pipe()
        for fds in ((), (read, write)):
            self.assertEqual(result(penumbra("sh", "-c", question, pass_fds=fds)),
                             result(run("sh", "-c", question, pass_fds=fds)))
        os.close(read)
        os.close(write)

    def test_ignored_signals_stay_ignored(self):
        question = ["sh", "-c", "grep ^SigIgn /proc/self/status"]
        ignoring = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
        self.assertEqual(result(penumbra(*question, **ignoring)), result(run(*question, **ignoring)))

    def test_closed_input_and_outputs(self):
        status = self.folder / "open"
        question = f'for fd in 0 1 2; do if [ -e /proc/$$/fd/$fd ]; then echo $fd; fi; done >>{status}; exit 3'
        for closed in ((0,), (1,), (2,), (0, 1, 2)):
            seen = []
            for words in ([LAUNCHER, "sh"], ["sh"]):
                def close_them(fds=closed):
                    for fd in fds:
                        os.close(fd)
                # dash keeps the redirection's descriptor open only while it writes, so what it lists is what it got.
                script = self.script("question", question)
                done = subprocess.run([*words, script], env=ENVIRONMENT, preexec_fn=close_them, check=False, timeout=60)
                self.assertEqual(done.returncode, 3, closed)
                seen.append(status.read_text())
                status.unlink()
            self.assertEqual(seen[0], seen[1], closed)

    def test_a_pipeline(self):
        pipeline = "ls -l /usr | sort -r | tr a-z A-Z | head -n 5; seq 1 50000 | awk '{s += $1} END {print s}'; yes | head -n 3"
        self.assertEqual(result(penumbra("sh", "-c", pipeline)), result(run("sh", "-c", pipeline)))


class Names(Scratch):
    def test_a_program_that_is_not_there_is_127(self):
        for name in ("nosuchprogram", "./nosuchprogram", "/nosuch/program", "/etc/passwd/x", ""):
            done = penumbra(name)
            self.assertEqual((done.returncode, done.stdout), (127, b""), name)
            self.assertRegex(self.only_line(done), f"^penumbra: {name}: .+")

    def test_a_program_that_cannot_be_executed_is_126(self):
        (self.folder / "data").write_text("text")
        for name in (self.folder / "data", self.folder):
            done = penumbra(name)
            self.assertEqual((done.returncode, done.stdout), (126, b""), name)
            self.assertRegex(self.only_line(done), f"^penumbra: {name}: .+")

    def test_an_unknown_option_is_one_line(self):
        done = penumbra("nosuchkey=1", "echo", "run")
        self.assertEqual((done.returncode, done.stdout), (125, b""))
        self.assertEqual(self.only_line(done), "penumbra: unknown option 'nosuchkey'; `penumbra --help` lists them")

    def test_an_unknown_option_in_the_environment_is_a_warning(self):
        done = penumbra("echo", "run", env=dict(ENVIRONMENT, PENUMBRA_OPTIONS="nosuchkey=1"))
        self.assertEqual((done.returncode, done.stdout), (0, b"run\n"))
        self.assertEqual(self.only_line(done), "penumbra: warning: PENUMBRA_OPTIONS: unknown option 'nosuchkey'; "
                                               "`penumbra --help` lists them")

    def test_options_given_stand_behind_those_of_the_environment(self):
        done = penumbra("junk=0", "exitcode=3", "printenv", "PENUMBRA_OPTIONS",
                        env=dict(ENVIRONMENT, PENUMBRA_OPTIONS="junk=1"))
        self.assertEqual(done.stdout, b"junk=1:junk=0:exitcode=3\n")

    def test_ours_stands_in_front_of_other_preloads_and_only_once(self):
        other = "/lib/x86_64-linux-gnu/libm.so.6"
        for before, after in ((other, f"{LIBRARY}:{other}"), (f"{LIBRARY}", f"{LIBRARY}"),
                              (f"{other} {LIBRARY}", f"{LIBRARY}:{other}"), ("", f"{LIBRARY}")):
            done = penumbra("printenv", "LD_PRELOAD", env=dict(ENVIRONMENT, LD_PRELOAD=before))
            self.assertEqual(done.stdout.decode(), after + "\n")

    def test_a_library_in_a_folder_with_blanks_is_found(self):
        build = self.folder / "a folder: with blanks" / "runtime"
        (build / "launcher").mkdir(parents=True)
        shutil.copy(LAUNCHER, build / "launcher/penumbra")
        shutil.copy(LIBRARY, build / "libpenumbra.so")
        asker = self.compile("asker", ASKER, "gcc")
        self.assertEqual(result(run(build / "launcher/penumbra", asker)), (7, b"named mapped\n", b""))

    def test_help_is_the_same_from_the_script_and_the_launcher(self):
        for word in ("--help", "--version"):
            self.assertEqual(result(penumbra(word)), result(run(ROOT / "penumbra", word)))
        self.assertEqual(result(penumbra()), result(run(ROOT / "penumbra")))


class Scripts(Scratch):
    def test_a_script_runs_by_its_bang_line(self):
        asker = self.compile("asker", ASKER, "gcc")
        inner = self.script("inner", f"#!/bin/sh\n{asker}; echo $1; exit 9\n")
        outer = self.script("outer", f"#!{inner}\n")
        self.assertEqual(result(penumbra(inner, "word")), (9, b"named mapped\nword\n", b""))
        self.assertEqual(penumbra(outer).returncode, 9)
        self.assertEqual(result(penumbra(self.script("by_env", f"#!/usr/bin/env -S sh -e\n{asker}\n"))),
                         (7, b"named mapped\n", b""))

    def test_a_script_without_one_is_the_shells(self):
        self.assertEqual(result(penumbra(self.script("plain", "echo $1; exit 4\n"), "word")), (4, b"word\n", b""))

    def test_a_script_whose_interpreter_is_missing_is_127(self):
        done = penumbra(self.script("lost", "#!/nosuch/interpreter\n"))
        self.assertEqual(done.returncode, 127)
        self.only_line(done)


SANITIZED = [("gcc", "address", "AddressSanitizer"), ("gcc", "thread", "ThreadSanitizer"),
             ("clang", "address", "AddressSanitizer"), ("clang", "thread", "ThreadSanitizer"),
             ("clang", "memory", "MemorySanitizer"), ("gcc", "address -static-libasan", "a sanitizer"),
             ("gcc", "thread -static-libtsan", "a sanitizer"), ("gcc", "leak", "LeakSanitizer")]


class StandsAside(Scratch):
    def native(self, program, why):
        done = penumbra(program)
        self.assertEqual(self.only_line(done), f"penumbra: {program} {why}: it runs without Penumbra")
        return done

    def test_a_static_program(self):
        program = self.compile("fixed", ASKER, "gcc", "-static")
        done = self.native(program, "is statically linked")
        self.assertEqual((done.returncode, done.stdout), (7, b"named unmapped\n"))

    def test_a_set_user_id_program(self):
        program = self.compile("raised", ASKER, "gcc")
        for mode in (0o4755, 0o2755):
            program.chmod(mode)
            done = self.native(program, "is set-user-ID or set-group-ID")
            self.assertEqual((done.returncode, done.stdout), (7, b"unnamed unmapped\n"))

    def test_a_32_bit_program(self):
        # exit(7) by int 0x80, behind one segment that loads the whole file.
        code = bytes.fromhex("b801000000bb07000000cd80")
        base = 0x08048000
        program = self.folder / "old"
        program.write_bytes(b"\x7fELF\1\1\1" + bytes(9) + struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + 84, 52, 0, 0, 52, 32, 1, 0, 0, 0)
                            + struct.pack("<IIIIIIII", 1, 0, base, base, 96, 96, 5, 4096) + code)
        program.chmod(0o755)
        try:
            native = run(program).returncode
        except OSError:
            native = None  # no 32-bit support in this kernel: the launcher cannot start it either
        done = penumbra(program)
        self.assertEqual(done.stderr.decode(errors="replace").splitlines()[0],
                         f"penumbra: {program} is no 64-bit x86-64 program: it runs without Penumbra")
        if native is not None:
            self.assertEqual(done.returncode, native)

    def sanitized(self, compiler, kind):
        flags = kind.split()
        return self.compile(f"{compiler}-{flags[0]}-{len(flags)}", ASKER, compiler, f"-fsanitize={flags[0]}", *flags[1:])

    def each_sanitizer(self, check):
        built = 0
        for compiler, kind, name in SANITIZED:
            with self.subTest(compiler=compiler, kind=kind):
                try:
                    program = self.sanitized(compiler, kind)
                except unittest.SkipTest:
                    continue
                built += 1
                check(program, name)
        self.assertGreaterEqual(built, 2, "gcc's sanitizers at least must be here")

    def test_sanitized_programs_under_the_launcher(self):
        def check(program, name):
            done = self.native(program, f"was built with {name}")
            self.assertEqual((done.returncode, done.stdout), (7, b"unnamed unmapped\n"))
        self.each_sanitizer(check)

    def test_sanitized_programs_with_the_library_preloaded_by_hand(self):
        def check(program, name):
            done = run(program, env=dict(ENVIRONMENT, LD_PRELOAD=str(LIBRARY)))
            self.assertEqual((done.returncode, done.stdout), (7, b"unnamed unmapped\n"), done.stderr)
            self.assertEqual(self.only_line(done), f"penumbra: {program} was built with {name}: it runs without Penumbra")
        self.each_sanitizer(check)

    def test_sanitized_children_of_checked_programs(self):
        def check(program, name):
            self.assertEqual(result(penumbra("sh", "-c", f"{program}; exit $?")), (7, b"unnamed unmapped\n", b""), name)
        self.each_sanitizer(check)

    def test_a_script_for_a_sanitized_interpreter(self):
        program = self.sanitized("gcc", "address")
        script = self.script("script", f"#!{program}\n")
        by_env = self.script("by_env", f"#!/usr/bin/env {program}\n")
        for path in (script, by_env):
            done = self.native(path, "was built with AddressSanitizer")
            self.assertEqual((done.returncode, done.stdout), (7, b"unnamed unmapped\n"))
        # And the same, found by a checked shell.
        for path in (script, by_env):
            self.assertEqual(penumbra("sh", "-c", str(path)).stdout, b"unnamed unmapped\n")

    def test_a_program_whose_library_is_sanitized(self):
        source = self.folder / "lib.c"
        source.write_text("int seven(void) { return 7; }\n")
        library = self.folder / "libseven.so"
        if run("gcc", "-shared", "-fPIC", "-fsanitize=address", source, "-o", library).returncode != 0:
            self.skipTest("gcc -fsanitize=address does not link here")
        program = self.folder / "user"
        (self.folder / "user.c").write_text('#include <stdio.h>\nint seven(void);\nint main(void) { puts("ran"); return seven(); }\n')
        # Its own runtime must come first, so the program names that as well, as the linker wants it.
        done = run("gcc", self.folder / "user.c", "-Wl,--no-as-needed", "-lasan", f"-L{self.folder}", "-lseven",
                   f"-Wl,-rpath,{self.folder}", "-o", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(result(run(program))[:2], (7, b"ran\n"))
        done = penumbra(program)
        self.assertEqual((done.returncode, done.stdout), (7, b"ran\n"), done.stderr)
        self.assertIn("AddressSanitizer", self.only_line(done))


FUNCTIONS = ["execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "execveat", "fexecve", "posix_spawn",
             "posix_spawnp"]
IN_VFORK = [f"vfork+{name}" for name in FUNCTIONS if not name.startswith("posix")]


class Children(Scratch):
    def test_an_ordinary_child_is_checked(self):
        asker = self.compile("asker", ASKER, "gcc")
        for function in FUNCTIONS + IN_VFORK:
            self.assertEqual(result(penumbra(EXEC_FAMILY, function, asker)), (7, b"named mapped\n", b""), function)

    def test_a_sanitized_child_is_free_of_us_and_keeps_other_preloads(self):
        program = self.compile("sanitized", ASKER.replace("return 7", 'puts(preload ? preload : "none"); return 7'), "gcc",
                               "-fsanitize=thread")
        other = "/lib/x86_64-linux-gnu/libm.so.6"
        for function in FUNCTIONS + IN_VFORK:
            done = penumbra(EXEC_FAMILY, function, program, env=dict(ENVIRONMENT, LD_PRELOAD=other))
            self.assertEqual(result(done), (7, f"unnamed unmapped\n{other}\n".encode(), b""), function)

    def test_a_start_that_fails_fails_as_it_does_without_us(self):
        (self.folder / "data").write_text("text")
        (self.folder / "data").chmod(0o644)
        self.script("plain", "exit 4\n")
        self.script("lost", "#!/nosuch/interpreter\n")
        programs = ["", "nosuchprogram", "/nosuch/program", f"{self.folder}/data", f"{self.folder}", "data", "x" * 300,
                    f"{self.folder}/plain", "plain", "lost", f"{self.folder}/lost", "/" + "x" * 5000]
        environment = dict(ENVIRONMENT, PATH=f"/nosuch:{self.folder}/data:{self.folder}:{'y' * 5000}:/bin:/usr/bin")
        for function in FUNCTIONS + IN_VFORK:
            for program in programs:
                if "fexecve" in function and (not program or "nosuch" in program):
                    continue  # opens the file first
                self.assertEqual(result(penumbra(EXEC_FAMILY, function, program, "word", env=environment)),
                                 result(run(EXEC_FAMILY, function, program, "word", env=environment)),
                                 (function, program[:40]))

    def test_names_are_looked_up_in_the_path(self):
        asker = self.compile("asker", ASKER, "gcc")
        environment = dict(ENVIRONMENT, PATH=f"/nosuch:{asker.parent}:/bin:/usr/bin")
        for function in ("execvp", "execvpe", "execlp", "posix_spawnp"):
            done = penumbra(EXEC_FAMILY, function, "asker", env=environment)
            self.assertEqual(result(done), (7, b"named mapped\n", b""), function)
        # Without PATH, where libc looks then.
        bare = {name: value for name, value in ENVIRONMENT.items() if name != "PATH"}
        for function in ("execvp", "posix_spawnp"):
            self.assertEqual(penumbra(EXEC_FAMILY, function, "printenv", "LD_PRELOAD", env=bare).stdout.decode(),
                             f"{LIBRARY}\n", function)

    def test_a_large_environment(self):
        program = self.compile("sanitized", ASKER, "gcc", "-fsanitize=thread")
        environment = dict(ENVIRONMENT, **{f"VARIABLE_{i}": "x" * 20 for i in range(5000)})
        self.assertEqual(result(penumbra(EXEC_FAMILY, "execve", program, env=environment)),
                         (7, b"unnamed unmapped\n", b""))

    def test_grandchildren_of_a_static_program_are_checked(self):
        asker = self.compile("asker", ASKER, "gcc")
        fixed = self.compile("fixed", f'#include <unistd.h>\nint main(void) {{ return execl("{asker}", "asker", (char*)0); }}',
                             "gcc", "-static")
        self.assertEqual(result(penumbra("sh", "-c", str(fixed))), (7, b"named mapped\n", b""))


if __name__ == "__main__":
    tap.main()
