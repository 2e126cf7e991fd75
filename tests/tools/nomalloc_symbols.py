#!/usr/bin/env python3
"""Looks for what code in the checked process must not call: nomalloc_symbols.py LIBPENUMBRA_SO ARCHIVE...

Every undefined symbol of the in-process archives is looked at. An allocator, stdio, C++ runtime or library symbol, or
lazy TLS, fails; so does one of the functions that Penumbra itself interposes, because a call from inside would be
checked, and could come back in.
"""

import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import exported_names  # noqa: E402  (the path is set above)

FORBIDDEN = [
    (re.compile(r"(malloc|calloc|realloc|reallocarray|free|posix_memalign|aligned_alloc|memalign|valloc|pvalloc|"
                r"strdup|strndup|asprintf|vasprintf|getline|getdelim|realpath)$"), "allocates"),
    (re.compile(r"(__)?(f|s|sn|d|v|vf|vs|vsn|vd|as|vas)?printf(_chk)?$|(f|p)?open(dir|64)?$|fdopen$|f?puts$|fputc$|"
                r"putchar$|puts$|fwrite$|fread$|fflush$|fclose$|(__isoc99_)?s?scanf$|perror$|stdout$|stderr$|stdin$"),
     "stdio"),
    (re.compile(r"__cxa_|__gxx_personality|_Unwind_Resume$"), "C++ runtime"),
    (re.compile(r"_Z(n[wa]|d[la])"), "operator new or delete"),
    (re.compile(r"_ZSt|_ZNSt|_ZNKSt|_ZTI|_ZTVN10__cxxabiv"), "C++ library"),
    (re.compile(r"__tls_get_addr$"), "lazy TLS"),
    (re.compile(r"__stack_chk_fail$"), "stack protector: reads TLS that early code does not have"),
]

# Compilers make up calls of these; the library is linked with --wrap, which sends them to runtime/base/raw_memory.h.
WRAPPED = {"memcpy", "memmove", "memset", "memcmp", "bcmp", "strlen"}
# Called on purpose, though the patterns or our own interposing say no.
CALLED_ON_PURPOSE = {
    # The exit status is replaced behind the program's own handlers, and only libc can be asked for that
    # (runtime/report/exit_status.cc).
    "__cxa_at_quick_exit", "__cxa_atexit",
    # With RTLD_NOLOAD, for another handle of what is loaded, given back at once (instrument/abi/leaving.cc).
    "dlopen", "dlclose",
}


def names(command):
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line.split() for line in listed.splitlines()]


def undefined(archive):
    """Pairs of (object, symbol)."""
    for words in names(["nm", "-A", "-u", archive]):
        if len(words) >= 3 and words[-2] in ("U", "w"):
            yield words[0].split(":")[-2] if ":" in words[0] else words[0], words[-1]


def main():
    library, archives = sys.argv[1], sys.argv[2:]
    exported = exported_names.defined(library)
    bad = 0
    looked_at = 0
    for archive in archives:
        for where, symbol in undefined(archive):
            looked_at += 1
            name = symbol.split("@")[0]
            reasons = [why for pattern, why in FORBIDDEN if pattern.match(name)]
            if name in CALLED_ON_PURPOSE:
                continue
            if name in exported and name not in WRAPPED:
                reasons.append("is interposed by us")
            if reasons:
                print(f"{where}: {name}: {', '.join(reasons)}")
                bad += 1
    if looked_at == 0:
        print("no undefined symbol at all: nm or the archives are not what this expects")
    return 1 if bad or looked_at == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
