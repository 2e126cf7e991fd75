#!/usr/bin/env python3
"""Holds the sources to the order of the house: include_direction.py ROOT

Upper folders include lower ones, never the reverse. RULES says for each folder which of ours it may include; the rule
with the longest matching folder counts. A folder may always include itself and the public headers.
"""

import pathlib
import re
import sys

BASE = ["runtime/base"]
SHADOW = ["shadow", *BASE]
BELOW_RUNTIME = ["allocator", "instrument/abi", "instrument/libc", "instrument/load", *SHADOW]

RULES = {
    "runtime/base": [],
    "shadow": BASE,
    "allocator": SHADOW,
    "instrument/abi": SHADOW,
    "instrument/libc": SHADOW,
    "instrument/load": SHADOW,
    "instrument/rewrite": ["shadow/encoding.h", "runtime/base/address.h", "runtime/base/content_key.h",
                            "runtime/base/module_format.h", "runtime/base/system_calls.h"],
    # In the checked process; the hosted launcher stays out of it.
    "runtime": ["runtime/stacks", "runtime/report", "runtime/signals", "runtime/process", "runtime/preload",
                "runtime/init.h", "runtime/threads.h", *BELOW_RUNTIME],
    "runtime/include": [],
    "runtime/launcher": ["runtime/process", "instrument/rewrite", *BASE],
    "tests": [""],
    "bench": ["allocator", "shadow", "instrument", "runtime", "tests/support"],
}
PUBLIC = "runtime/include/penumbra/"

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<(penumbra/[^>]+)>)', re.MULTILINE)
SUFFIXES = {".h", ".cc", ".c", ".S", ".inc"}


def rule_for(path):
    """The folder whose rule counts for `path`, or None."""
    folders = [folder for folder in RULES if path.startswith(folder + "/")]
    return max(folders, key=len, default=None)


def resolve(root, source, name):
    """The included file relative to the root, as the compiler would find it; None for a system header."""
    for candidate in (root / name, source.parent / name, root / "runtime/include" / name):
        if candidate.exists():
            return str(candidate.resolve().relative_to(root))
    return None


def is_allowed(source, included):
    folder = rule_for(source)
    if folder is None:
        return False
    own = str(pathlib.PurePath(source).parent)
    if included.startswith(PUBLIC) or included.startswith(folder + "/") and rule_for(included) == folder:
        return True
    if str(pathlib.PurePath(included).parent) == own:
        return True
    if included.startswith(("tests/", "bench/")):
        return source.startswith(("tests/", "bench/"))
    for allowed in RULES[folder]:
        if included == allowed or allowed == "" or included.startswith(allowed + "/"):
            return True
    return False


def violations(root):
    for top in ("runtime", "shadow", "allocator", "instrument", "tests", "bench"):
        for source in sorted((root / top).rglob("*")):
            if source.suffix not in SUFFIXES or not source.is_file():
                continue
            path = str(source.relative_to(root))
            for match in INCLUDE.finditer(source.read_text(encoding="utf-8")):
                name = match[1] or match[2]
                included = resolve(root, source, name)
                if included is not None and not is_allowed(path, included):
                    yield f"{path}: may not include {included}"


def main():
    found = list(violations(pathlib.Path(sys.argv[1]).resolve()))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
