#!/usr/bin/env python3
"""Every __asan_ and __sanitizer_ name that a compiler refers to is exported by libpenumbra.so.

Compiles the corpus beside this file with each compiler that is installed and each set of flags that changes what the
compiler emits, and asks nm. Fails on a missing name, a corpus file that does not compile, and when no compiler is there.

usage: emitted_symbols.py LIBPENUMBRA
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

CORPUS = pathlib.Path(__file__).parent / "corpus"
NAME = re.compile(r"\bU (__(?:asan|sanitizer|hwasan|sancov)_\w+)")

GCC_INLINE = ["-fasan-shadow-offset=0x7fff8000", "--param=asan-instrumentation-with-call-threshold=10000"]
GCC_OUTLINE = ["--param=asan-instrumentation-with-call-threshold=0"]
GCC_STACK = ["--param=asan-stack=1", "--param=asan-globals=1", "--param=asan-instrument-allocas=1",
             "-fsanitize-address-use-after-scope"]
GCC_ROWS = {
    "bare": [],
    "bare, stack": GCC_STACK,
    "inline": GCC_INLINE,
    "inline, stack": GCC_INLINE + GCC_STACK,
    "outline, stack": GCC_OUTLINE + GCC_STACK,
    "inline, use after return": GCC_INLINE + GCC_STACK + ["--param=asan-use-after-return=1"],
    "inline, no recovery": GCC_INLINE + GCC_STACK + ["-fno-sanitize-recover=kernel-address"],
    "outline, no recovery": GCC_OUTLINE + GCC_STACK + ["-fno-sanitize-recover=kernel-address"],
    "pairs": ["-fsanitize=pointer-compare,pointer-subtract"],
}


def llvm(*options):
    return [word for option in options for word in ("-mllvm", option)]


CLANG_INLINE = ["-asan-instrumentation-with-call-threshold=10000", "-asan-mapping-offset=0x7fff8000"]
CLANG_OUTLINE = ["-asan-instrumentation-with-call-threshold=0"]
CLANG_SCOPE = ["-asan-use-after-scope=1", "-asan-instrument-dynamic-allocas=1"]
CLANG_ROWS = {
    "bare": [],
    "inline": llvm(*CLANG_INLINE),
    "outline": llvm(*CLANG_OUTLINE),
    "inline, scope": llvm(*CLANG_INLINE, *CLANG_SCOPE),
    "outline, scope": llvm(*CLANG_OUTLINE, *CLANG_SCOPE),
    "outline, nothing else": llvm(*CLANG_OUTLINE, "-asan-stack=0", "-asan-globals=0"),
    "set-shadow": llvm(*CLANG_SCOPE, "-asan-max-inline-poisoning-size=0"),
    "dynamic base": llvm("-asan-force-dynamic-shadow=1"),
    "use after return": llvm("-asan-use-after-return=runtime"),
    "use after return, always": llvm("-asan-use-after-return=always"),
    "pairs": llvm("-asan-detect-invalid-pointer-pair=1"),
    "mem prefix": llvm("-asan-kernel-mem-intrinsic-prefix=1"),  # clang 15 and later
}
COMPILERS = [("gcc", "g++", GCC_ROWS), ("clang-14", "clang++-14", CLANG_ROWS), ("clang-19", "clang++-19", CLANG_ROWS)]


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


def referenced(compiler, sources, flags, directory):
    """Names that any of the sources refers to, or None and what the compiler said."""
    done = subprocess.run([compiler, "-c", "-O1", "-w", "-fPIC", "-fsanitize=kernel-address", *flags, *sources],
                          cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None, done.stderr
    objects = [str(path) for path in pathlib.Path(directory).glob("*.o")]
    return set(NAME.findall(run("nm", "-u", *objects).stdout)), ""


def main():
    exported = set(re.findall(r" [TDBVWi] (\w+)", run("nm", "-D", "--defined-only", sys.argv[1]).stdout))
    languages = [sorted(map(str, CORPUS.glob("*.c"))), sorted(map(str, CORPUS.glob("*.cc")))]
    seen, failures, compiled, used = set(), [], 0, []
    for *compilers, rows in COMPILERS:
        if None in map(shutil.which, compilers):
            continue
        used.append(compilers[0])
        for row, flags in rows.items():
            if row == "mem prefix" and compilers[0] == "clang-14":
                continue  # it does not know the option
            for compiler, sources in zip(compilers, languages):
                with tempfile.TemporaryDirectory() as directory:
                    names, error = referenced(compiler, sources, flags, directory)
                if names is None:
                    failures.append(f"{compiler} {row} does not compile:\n{error}")
                    continue
                compiled += len(sources)
                seen |= names
                for name in sorted(names - exported):
                    failures.append(f"{name} is not exported (needed by {compiler} {row})")
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
