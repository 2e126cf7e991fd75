#!/usr/bin/env python3
"""Every __asan_ and __sanitizer_ name that a compiler refers to is exported by libpenumbra.so.

Compiles the corpus beside this file with each compiler that is installed and each set of flags that changes what the
compiler emits, and asks nm. Fails on a missing name, a corpus file that does not compile, and when no compiler is there.

usage: emitted_symbols.py LIBPENUMBRA
"""
import itertools
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

CORPUS = pathlib.Path(__file__).parent / "corpus"
NAME = re.compile(r"\bU (__(?:asan|sanitizer|hwasan|sancov)_\w+)")

GCC_ROWS = {
    "bare": [],
    "inline": ["-fasan-shadow-offset=0x7fff8000", "--param", "asan-instrumentation-with-call-threshold=10000"],
    "outline": ["--param", "asan-instrumentation-with-call-threshold=0"],
}
GCC_EXTRAS = {
    "": [],
    "stack": ["--param", "asan-stack=1", "--param", "asan-globals=1", "--param", "asan-instrument-allocas=1",
              "-fsanitize-address-use-after-scope"],
    "use-after-return": ["--param", "asan-stack=1", "--param", "asan-use-after-return=1"],
    "no-recover": ["-fno-sanitize-recover=kernel-address", "--param", "asan-stack=1"],
    "pairs": ["-fsanitize=pointer-compare,pointer-subtract"],
}
CLANG_ROWS = {
    "bare": [],
    "inline": ["-mllvm", "-asan-instrumentation-with-call-threshold=10000", "-mllvm", "-asan-mapping-offset=0x7fff8000"],
    "outline": ["-mllvm", "-asan-instrumentation-with-call-threshold=0"],
}
CLANG_EXTRAS = {
    "": [],
    "off": ["-mllvm", "-asan-stack=0", "-mllvm", "-asan-globals=0"],
    "scope": ["-mllvm", "-asan-use-after-scope=1", "-mllvm", "-asan-instrument-dynamic-allocas=1"],
    "set-shadow": ["-mllvm", "-asan-use-after-scope=1", "-mllvm", "-asan-max-inline-poisoning-size=0"],
    "dynamic": ["-mllvm", "-asan-force-dynamic-shadow=1"],
    "use-after-return": ["-mllvm", "-asan-use-after-return=runtime"],
    "use-after-return-always": ["-mllvm", "-asan-use-after-return=always"],
    "pairs": ["-mllvm", "-asan-detect-invalid-pointer-pair=1"],
    "mem-prefix": ["-mllvm", "-asan-kernel-mem-intrinsic-prefix=1"],  # clang 15 and later
}
COMPILERS = [("gcc-12", "g++-12", GCC_ROWS, GCC_EXTRAS), ("gcc", "g++", GCC_ROWS, GCC_EXTRAS),
             ("clang-14", "clang++-14", CLANG_ROWS, CLANG_EXTRAS), ("clang-19", "clang++-19", CLANG_ROWS, CLANG_EXTRAS)]


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


def referenced(compiler, source, flags, directory):
    output = pathlib.Path(directory) / "out.o"
    done = run(compiler, "-c", "-O2", "-w", "-fPIC", "-fsanitize=kernel-address", *flags, str(source), "-o", str(output))
    if done.returncode != 0:
        return None, done.stderr
    return set(NAME.findall(run("nm", "-u", str(output)).stdout)), ""


def main():
    exported = set(re.findall(r" [TDBVWi] (\w+)", run("nm", "-D", "--defined-only", sys.argv[1]).stdout))
    seen, failures, compiled, used = set(), [], 0, []
    with tempfile.TemporaryDirectory() as directory:
        for c, cxx, rows, extras in COMPILERS:
            if shutil.which(c) is None or shutil.which(cxx) is None or (c == "gcc" and "gcc-12" in used):
                continue
            used.append(c)
            for (row, base), (extra, more) in itertools.product(rows.items(), extras.items()):
                if extra == "mem-prefix" and c == "clang-14":
                    continue  # it does not know the option
                for source in sorted(CORPUS.glob("*.c")) + sorted(CORPUS.glob("*.cc")):
                    names, error = referenced(cxx if source.suffix == ".cc" else c, source, base + more, directory)
                    if names is None:
                        failures.append(f"{c} {row} {extra} {source.name} does not compile:\n{error}")
                        continue
                    compiled += 1
                    seen |= names
                    for name in sorted(names - exported):
                        failures.append(f"{name} is not exported (needed by {c} {row} {extra} {source.name})")
    print(f"{compiled} objects by {', '.join(used)}; {len(seen)} names")
    for failure in failures:
        print(failure)
    # A corpus that provokes nothing proves nothing.
    for name in ("__asan_load16_noabort", "__asan_report_store_n_noabort", "__asan_alloca_poison",
                 "__asan_register_globals", "__asan_handle_no_return"):
        if name not in seen:
            failures.append(f"the corpus does not make any compiler refer to {name}")
            print(failures[-1])
    return 1 if failures or not used else 0


if __name__ == "__main__":
    sys.exit(main())
