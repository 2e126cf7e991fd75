#!/usr/bin/env python3
"""Names the rewriter that a folder of sources makes: revision.py OUTPUT DEPFILE SOURCE...

Module files carry the name: what another rewriter wrote, even in the same format, is not found, and made anew. It is a
hash over the names and contents of the sources and of all headers beside them, so it repeats from build to build.
"""

import hashlib
import pathlib
import sys


def main():
    output, depfile, *sources = map(pathlib.Path, sys.argv[1:])
    folder = sources[0].parent
    inputs = sorted({path.resolve() for path in [*sources, *folder.glob("*.h"),
                                                 folder.parent.parent / "runtime/base/module_format.h"]})
    total = hashlib.sha256()
    for path in inputs:
        total.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    output.write_text("// Made by instrument/rewrite/revision.py.\n#pragma once\n\n"
                      '// What stands behind the identity in a module file\'s name.\n'
                      f'#define PENUMBRA_MODULE_SUFFIX ".{total.hexdigest()[:12]}.module"\n')
    depfile.write_text(f"{output}: {' '.join(map(str, inputs))}\n")


if __name__ == "__main__":
    main()
