#!/usr/bin/env python3
"""Compiled programs end to end: each correct program runs clean, each wrong one is reported once, as it should be.

Every program of programs/ is compiled as a user would (pkg-config, from the build tree) by each compiler that is
installed, with inline checks and with outline checks, both with stack checks, linked and run.

usage: run_programs.py BUILD_DIR [PROGRAM...]
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent / "programs"
CLEAN = ["exceptions.cc", "cancel.cc", "jumps.c", "threads.c", "contexts.c", "vforks.c", "frames.c", "globals.cc"]
BUGS = {
    "global": "global-out-of-bounds",
    "static": "global-out-of-bounds",
    "stack": "stack-out-of-bounds",
    "stack-left": "stack-out-of-bounds",
    "scope": "use-after-scope",
    "alloca": "alloca-out-of-bounds",
    "alloca-left": "alloca-out-of-bounds",
}
GCC_STACK = ["--param=asan-stack=1", "--param=asan-globals=1", "--param=asan-instrument-allocas=1",
             "-fsanitize-address-use-after-scope"]
CLANG_OUTLINE = ["-mllvm", "-asan-instrumentation-with-call-threshold=0"]


def pkg_config(build, *arguments):
    environment = dict(os.environ, PKG_CONFIG_PATH=str(build / "meson-uninstalled"))
    done = subprocess.run(["pkg-config", *arguments], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


class Toolchain:
    """One compiler with one way of checking; compiles the uninstrumented objects once."""

    def __init__(self, name, c, cxx, cflags, libs, directory):
        self.name, self.c, self.cxx, self.cflags, self.libs, self.directory = name, c, cxx, cflags, libs, directory
        self.plain = [self.compile(source, ["-O2", "-fPIC"]) for source in ("plain.cc", "plain_jump.c")]

    def compile(self, source, flags, output=None, link=()):
        output = output or f"{self.directory}/{pathlib.Path(source).stem}.o"
        compiler = self.cxx if source.endswith(".cc") else self.c
        what = [] if link else ["-c"]
        command = [compiler, "-w", "-g", *what, *flags, str(HERE / source), "-o", output, *link]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
        return output

    def program(self, source, optimize="-O1"):
        # C++ libraries for the plain objects that throw; a C program may have them as well.
        return self.compile(source, [optimize, *self.cflags], f"{self.directory}/{pathlib.Path(source).stem}",
                            [*self.plain, *self.libs, "-lstdc++", "-pthread"])

    def module(self, source):
        return self.compile(source, ["-O1", "-fPIC", "-shared", *self.cflags], f"{self.directory}/module.so",
                            self.libs)


def toolchains(build, scratch):
    gcc_libs, clang_libs = pkg_config(build, "--libs", "penumbra"), pkg_config(build, "--libs", "penumbra-clang")
    gcc, clang = pkg_config(build, "--cflags", "penumbra"), pkg_config(build, "--cflags", "penumbra-clang")
    gcc_outline = pkg_config(build, "--variable=outline_cflags", "penumbra") + GCC_STACK
    for name, c, cxx, cflags, libs in [
            ("gcc inline", "gcc", "g++", gcc, gcc_libs), ("gcc outline", "gcc", "g++", gcc_outline, gcc_libs),
            ("clang-14 inline", "clang-14", "clang++-14", clang, clang_libs),
            ("clang-14 outline", "clang-14", "clang++-14", clang + CLANG_OUTLINE, clang_libs),
            ("clang-19 inline", "clang-19", "clang++-19", clang, clang_libs),
            ("clang-19 outline", "clang-19", "clang++-19", clang + CLANG_OUTLINE, clang_libs)]:
        if shutil.which(cxx) is None:
            print(f"skipped: {name} (not installed)")
            continue
        directory = pathlib.Path(scratch) / name.replace(" ", "-")
        directory.mkdir()
        if "clang" in name and "outline" in name:  # an LLVM option may be given once: this one replaces the file's
            flags = [line for line in (pathlib.Path(cflags[0][1:]).read_text().split("\n")) if line]
            at = flags.index("-asan-instrumentation-with-call-threshold=10000")
            flags[at] = "-asan-instrumentation-with-call-threshold=0"
            cflags = flags + cflags[1:len(clang)]
        yield Toolchain(name, c, cxx, cflags, libs, directory)


def run(command, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "LD_", "PENUMBRA_"))}
    environment.update(variables)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def reported(done):
    return re.findall(r"^BUG: KASAN: (\S+) in", done.stderr, re.MULTILINE)


def main():
    build, only = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    failures, passed = [], 0

    def judge(name, done, wanted, status):
        nonlocal passed
        if reported(done) == wanted and done.returncode == status and "ok" in done.stdout:
            passed += 1
            return
        failures.append(name)
        print(f"FAILED {name}: wanted {wanted} and status {status}, got {reported(done)} and {done.returncode}\n"
              f"{done.stdout}{done.stderr[:3000]}")

    with tempfile.TemporaryDirectory() as scratch:
        for tools in toolchains(build, scratch):
            for source in CLEAN:
                if only and source.split(".")[0] not in only:
                    continue
                judge(f"{tools.name}: {source}", run([tools.program(source)]), [], 0)
            if not only or "modules" in only:
                program, module = tools.program("modules.c"), tools.module("module.c")
                judge(f"{tools.name}: modules.c", run([program, module]), [], 0)
                judge(f"{tools.name}: modules.c bad", run([program, module, "bad"]), ["global-out-of-bounds"], 99)
            if not only or "interface" in only:
                program = tools.program("interface.c")
                done = run([program])
                judge(f"{tools.name}: interface.c", done, ["use-after-poison"], 99)
                # What it prints itself comes before the report; functions have names only where the helper was built.
                for text in ("belongs to variable arena of", "4 bytes to the right of", r"\] \w+\+0x\w+/0x\w+ \[interface\]"):
                    if not re.search(text, done.stderr.split("BUG: KASAN")[0]):
                        failures.append(f"{tools.name}: interface.c")
                        print(f"FAILED {tools.name}: interface.c: no '{text}' in\n{done.stderr}")
                done = run([program], PENUMBRA_OPTIONS="halt_on_error=1")
                judge(f"{tools.name}: interface.c halting", done, ["use-after-poison"], 99)
                if not done.stdout.endswith("death callback\n"):
                    failures.append(f"{tools.name}: interface.c halting")
                    print(f"FAILED {tools.name}: the death callback did not run: {done.stdout}")
            if not only or "bugs" in only:
                program = tools.program("bugs.c")
                judge(f"{tools.name}: bugs.c", run([program]), [], 0)
                for bug, wanted in BUGS.items():
                    judge(f"{tools.name}: bugs.c {bug}", run([program, bug]), [wanted], 99)
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
