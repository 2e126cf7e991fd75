#!/usr/bin/env python3
"""Holds libpenumbra.so to its public names: exported_names.py LIBPENUMBRA_SO LIBMIMALLOC_SO exports|pointers

exports: what it exports is either interposed (a library of the system defines the name as well) or has a public
prefix.
pointers: nothing of libmimalloc that takes or gives a pointer to user memory is left to libmimalloc: a program that
found it there would mix two heaps.
"""

import re
import subprocess
import sys

PUBLIC = re.compile(r"(penumbra_|__asan_|__lsan_|__sanitizer_|__kasan_)")
# Libraries whose names are interposed. libgcc_s: _Unwind_*.
INTERPOSED_LIBRARIES = ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0"]
# Other allocators' names, which glibc lacks and some programs look for.
OTHER_ALLOCATORS = {"malloc_size", "malloc_good_size", "cfree", "reallocf", "reallocarr", "vfree", "_aligned_malloc",
                    "__libc_cfree", "__posix_memalign"}
# mimalloc's functions about heaps as such, sizes, options and statistics: no pointer to user memory goes in or out.
NO_USER_POINTER = re.compile(r"mi_(arena_area|collect|debug_show_arenas|good_size|malloc_good_size|"
                             r"heap_(collect|delete|destroy|get_backing|get_default|new|new_in_arena|set_default|visit_blocks)|"
                             r"is_redirected|manage_os_memory(_ex)?|option_\w+|process_\w+|register_\w+|reserve_\w+|"
                             r"stats_\w+|thread_\w+|version)$")


def defined(library):
    """Names that `library` offers to others. (ld keeps hidden start and stop symbols in the table; they do not count.)"""
    listed = subprocess.run(["readelf", "--dyn-syms", "-W", library], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return {row[7].split("@")[0] for row in rows
            if len(row) >= 8 and row[4] in ("GLOBAL", "WEAK") and row[5] in ("DEFAULT", "PROTECTED") and row[6] != "UND"}


def path_of(soname):
    """Where the loader finds `soname`."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        words = line.split()
        if words and words[0] == soname and "x86-64" in line:
            return words[-1]
    raise SystemExit(f"{soname} is not installed")


def main():
    ours = defined(sys.argv[1])
    mimalloc = defined(sys.argv[2])
    system = set().union(*(defined(path_of(name)) for name in INTERPOSED_LIBRARIES))
    exports = [f"exported, but neither public nor interposed: {name}"
               for name in sorted(ours - system - mimalloc - OTHER_ALLOCATORS) if not PUBLIC.match(name)]
    pointers = [f"left to libmimalloc: {name}" for name in sorted(mimalloc - ours) if not NO_USER_POINTER.match(name)]
    bad = {"exports": exports, "pointers": pointers}[sys.argv[3]]
    for line in bad:
        print(line)
    return 1 if bad or not ours or not mimalloc else 0


if __name__ == "__main__":
    sys.exit(main())
